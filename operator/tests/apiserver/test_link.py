"""A WANLink as front routers measure it."""

from typing import Any

import pytest

from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import EVENT, PDD_DEPLOYMENT, WAN_LINK
from pdd_operator.clusters.session import Object

from .world import World, condition

pytestmark = pytest.mark.apiserver

FRONT = "assistant-front-router-0"


def _telemetry(p50: int | None, *, reachable: bool = True) -> dict[str, Any]:
    """As the contract has it."""
    rtt = None if p50 is None else {"p50": p50, "p99": p50 + 900}
    link = {"link": "a-b", "peer": "site-b", "reachable": reachable, "rttMicros": rtt, "samples": 60}
    return {"version": 1, "links": [{**link, "lastProbeAgeMillis": 400}]}


def _compared(*differ: str) -> dict[str, Any]:
    mismatches = [
        {
            "field": field,
            "prefill": {"engine": "assistant-prefill-x", "value": "a"},
            "other": {"engine": "assistant-main-decode-y", "site": "site-b", "role": "main-decode", "value": "b"},
        }
        for field in differ
    ]
    return {**_telemetry(20_350), "compatibility": {"checked": 3, "mismatches": mismatches}}


class Routers:
    """Front routers that answer what the test put there."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[Any, ...]] = []
        self._world = world
        monkeypatch.setattr(world.hub, "through_pod", self._answer)

    async def start(self, *answers: dict[str, Any]) -> None:
        """A pod for each answer."""
        for number, answer in enumerate(answers):
            pod = await self._world.front_router_pod(number, podIP=f"10.8.0.{number + 1}")
            self.answers[pod["metadata"]["name"]] = answer

    async def _answer(self, namespace: str, pod: str, port: int, path: str) -> dict[str, Any]:
        self.asked.append((namespace, pod, port, path))
        if pod not in self.answers:
            raise ApiError(503, "connection refused")
        return self.answers[pod]


async def _link(world: World) -> Object:
    await world.visit(WAN_LINK, "a-b")
    found = await world.hub.get(WAN_LINK, "a-b")
    assert found is not None
    return found


async def test_nobody_uses_the_line(world: World) -> None:
    await world.meet_members()
    found = await _link(world)
    assert condition(found, "Ready")["status"] == "Unknown"
    assert condition(found, "Ready")["reason"] == "NoMeasurement"


async def test_measured_rounded_and_quiet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    await world.reconcile()
    routers = Routers(world, monkeypatch)
    await routers.start(_telemetry(20_350))
    found = await _link(world)
    assert routers.asked == [(world.namespace, FRONT, 8000, "telemetry")]
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "LatencyWithinBudget")["status"] == "True"
    assert found["status"]["roundTrip"] == "20ms"
    path = {"from": "site-a", "to": "site-b", "trafficClass": "EF", "roundTripMicros": {"p50": 20_000, "p99": 21_000}}
    assert found["status"]["paths"] == [path]

    for jitter in (20_900, 19_800, 80_000):  # the last is a change, and too soon after the last write
        routers.answers[FRONT] = _telemetry(jitter)
        again = await _link(world)
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]

    routers.answers[FRONT] = _telemetry(None, reachable=False)
    found = await _link(world)
    assert condition(found, "Reachable")["reason"] == "NoAnswer"
    await world.pretend_ready()
    deployment = await world.reconcile()
    assert condition(deployment, "LinkReady")["status"] == "False"
    assert condition(deployment, "Ready")["reason"] == "LinkNotReady"


async def test_a_router_that_does_not_report_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    await world.reconcile()

    await Routers(world, monkeypatch).start()
    await world.front_router_pod(0, podIP="10.8.0.1")
    found = await _link(world)
    assert condition(found, "Ready")["status"] == "Unknown"
    assert condition(found, "Ready")["reason"] == "NoMeasurement"


async def test_every_front_router_is_asked_and_what_one_finds_different_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create()
    await world.reconcile()
    await world.pretend_ready()
    found = await world.reconcile()
    deployment = PDD_DEPLOYMENT.kind, "assistant", world.namespace
    assert condition(found, "KVCompatible")["reason"] == "NoTelemetry"
    assert condition(found, "Ready")["status"] == "True"
    woken: list[tuple[Any, ...]] = []
    monkeypatch.setattr(world.supervisor.context.loops, "wake", lambda *what, **_: woken.append(what))

    routers = Routers(world, monkeypatch)
    await routers.start(_compared(), _compared())
    await _link(world)
    assert deployment in woken
    asked = len(routers.asked)
    found = await world.reconcile()
    same = condition(found, "KVCompatible")
    assert (same["status"], same["reason"]) == ("True", "SameModelAndFormat")
    assert same["message"] == "3 engines were compared"
    assert len(routers.asked) == asked, "the deployment uses what was read for its line"

    routers.answers[FRONT] = _compared("weights_fingerprint")
    await _link(world)
    found = await world.reconcile()
    differ = condition(found, "KVCompatible")
    assert (differ["status"], differ["reason"]) == ("False", "Mismatch")
    assert differ["message"].startswith(
        "weights_fingerprint: assistant-prefill-x (prefill on site-a) has a, "
        "assistant-main-decode-y (main-decode on site-b) has b; run the same image everywhere"
    )
    assert condition(found, "Ready")["reason"] == "KVNotCompatible"
    events = [each["reason"] for each in await world.hub.list(EVENT, world.namespace)]
    assert {"SameModelAndFormat", "Mismatch", "KVNotCompatible"} <= set(events)

    before = await world.versions()
    woken.clear()
    for _ in range(2):
        await _link(world)
        await world.reconcile()
    assert await world.versions() == before
    assert deployment not in woken
