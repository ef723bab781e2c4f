"""A WANLink as front routers measure it."""

from typing import Any

import pytest

from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import WAN_LINK
from pdd_operator.clusters.session import Object

from .world import World, condition

pytestmark = pytest.mark.apiserver


def _telemetry(p50: int | None, *, reachable: bool = True) -> dict[str, Any]:
    """As the contract has it."""
    rtt = None if p50 is None else {"p50": p50, "p99": p50 + 900}
    link = {"link": "a-b", "peer": "site-b", "reachable": reachable, "rttMicros": rtt, "samples": 60}
    return {"version": 1, "links": [{**link, "lastProbeAgeMillis": 400}]}


async def _link(world: World) -> Object:
    await world.visit(WAN_LINK, "a-b")
    found = await world.hub.get(WAN_LINK, "a-b")
    assert found is not None
    return found


async def test_nobody_uses_the_line(world: World) -> None:
    await world.meet_members()
    found = await _link(world)
    assert condition(found, "Ready")["status"] == "Unknown"
    assert condition(found, "Ready")["reason"] == "NoProbe"


async def test_measured_rounded_and_quiet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    await world.reconcile()
    asked: list[tuple[str, ...]] = []
    answer: list[dict[str, Any]] = [_telemetry(20_350)]

    async def through_service(*path: str) -> dict[str, Any]:
        asked.append(path)
        return answer[0]

    monkeypatch.setattr(world.hub, "through_service", through_service)
    found = await _link(world)
    assert asked == [(world.namespace, "assistant-front-router:http", "telemetry")]
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "LatencyWithinBudget")["status"] == "True"
    assert found["status"]["roundTrip"] == "20ms"
    path = {"from": "site-a", "to": "site-b", "roundTripMicros": {"p50": 20_000, "p99": 21_000}}
    assert found["status"]["paths"] == [path]

    for jitter in (20_900, 19_800, 80_000):  # the last is a change, and too soon after the last write
        answer[0] = _telemetry(jitter)
        again = await _link(world)
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]

    answer[0] = _telemetry(None, reachable=False)
    found = await _link(world)
    assert condition(found, "Reachable")["reason"] == "NoAnswer"
    await world.pretend_ready()
    deployment = await world.reconcile()
    assert condition(deployment, "LinkReady")["status"] == "False"
    assert condition(deployment, "Ready")["reason"] == "LinkNotReady"


async def test_a_router_that_does_not_report_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    await world.reconcile()

    async def through_service(*_: str) -> dict[str, Any]:
        raise ApiError(503, "no endpoints available")

    monkeypatch.setattr(world.hub, "through_service", through_service)
    found = await _link(world)
    assert condition(found, "Ready")["status"] == "Unknown"
    assert condition(found, "Ready")["reason"] == "NoProbe"
