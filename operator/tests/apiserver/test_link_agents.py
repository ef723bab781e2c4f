"""Link agents at both ends of a WANLink."""

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    MEMBER_CLUSTER,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    WAN_LINK,
    Kind,
)
from pdd_operator.clusters.session import Object, Session

from .world import SYSTEM, World, condition

pytestmark = pytest.mark.apiserver

NAME = "pdd-link-a-b"
KINDS = (SERVICE, CONFIG_MAP, DEPLOYMENT, SECRET)


@pytest.fixture
async def lined(world: World) -> AsyncIterator[World]:
    """With an image for link agents; members are known."""
    context = world.supervisor.context
    world.supervisor.context = dataclasses.replace(
        context, settings=dataclasses.replace(context.settings, link_image="link:1")
    )
    await world.ensure_system_namespace(world.remote)
    await world.meet_members()
    yield world
    for session in (world.hub, world.remote):
        for kind in (*KINDS, POD):
            for found in await session.list(kind, SYSTEM, selector="app.kubernetes.io/component=link-agent"):
                await session.delete(kind, found)


async def agents(session: Session) -> dict[str, Object]:
    return {kind.kind: found for kind in KINDS if (found := await session.get(kind, NAME, SYSTEM)) is not None}


async def visit(world: World) -> Object:
    await world.visit(WAN_LINK, "a-b")
    found = await world.hub.get(WAN_LINK, "a-b")
    assert found is not None
    return found


def config(found: dict[str, Object]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(found["ConfigMap"]["data"]["link.json"])
    return content


async def test_both_ends_get_agents_that_know_each_other(lined: World) -> None:
    found = await visit(lined)
    here, there = await agents(lined.hub), await agents(lined.remote)
    assert here.keys() == there.keys() == {"Service", "ConfigMap", "Deployment", "Secret"}
    assert here["Secret"]["data"] == there["Secret"]["data"]
    assert config(here)["site"] == "site-a"
    [peer, *_] = config(here)["peers"]
    node_port = there["Service"]["spec"]["ports"][0]["nodePort"]
    assert (peer["site"], peer["probePort"], peer["router"]) == ("site-b", node_port, None)
    assert condition(found, "Provisioned")["reason"] == "AgentsNotReady"
    assert condition(found, "Ready")["status"] == "Unknown"
    assert "pdd.dev/cleanup" in found["metadata"]["finalizers"]


async def test_at_rest_nothing_is_written(lined: World) -> None:
    await visit(lined)

    async def versions() -> list[str]:
        found = [*(await agents(lined.hub)).values(), *(await agents(lined.remote)).values()]
        return [each["metadata"]["resourceVersion"] for each in [*found, await visit(lined)]]

    before = await versions()
    assert await versions() == before


async def test_an_end_without_a_key_gets_the_others(lined: World) -> None:
    await visit(lined)
    key = (await agents(lined.remote))["Secret"]["data"]
    await lined.hub.delete(SECRET, (await agents(lined.hub))["Secret"])
    await visit(lined)
    assert (await agents(lined.hub))["Secret"]["data"] == key


async def test_what_agents_measured(lined: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await visit(lined)
    for session in (lined.hub, lined.remote):
        workload = (await agents(session))["Deployment"]
        template = workload["spec"]["template"]
        # Which account it is does not matter; that of the namespace would be made by a controller.
        spec = {**template["spec"], "serviceAccountName": NAME}
        await session.create(SERVICE_ACCOUNT, {"metadata": {"name": NAME, "namespace": SYSTEM}})
        metadata = {**template["metadata"], "name": f"{NAME}-0", "namespace": SYSTEM}
        pod = await session.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await session.replace_status(POD, {**pod, "status": {"phase": "Running", "podIP": "10.8.0.9"}})
        status = {"replicas": 2, "readyReplicas": 2, "observedGeneration": 1}
        await session.replace_status(DEPLOYMENT, {**workload, "status": status})
    asked: list[tuple[Any, ...]] = []

    async def through_pod(_session: Session, *where: Any) -> dict[str, Any]:
        asked.append(where)
        echoes = {"sent": 600, "echoed": 600, "roundTripMicros": {"p50": 20_300, "p99": 21_000}, "jitterMicros": 200}
        classes = [{"trafficClass": lane, **echoes, "lastEchoSecondsAgo": 0} for lane in ("EF", "CS1")]
        peer = {"site": "x", "host": "h", "probePort": 1, "classes": classes}
        return {"version": 1, "link": "a-b", "site": "x", "incarnation": "0", "heard": [], "peers": [peer]}

    monkeypatch.setattr(Session, "through_pod", through_pod)
    found = await visit(lined)
    assert asked == [(SYSTEM, f"{NAME}-0", 9090, "v1/measurements")] * 2
    assert condition(found, "Provisioned")["status"] == "True"
    assert condition(found, "Established")["status"] == "True"
    assert condition(found, "Ready")["status"] == "True"
    assert found["status"]["roundTrip"] == "20ms"
    assert len(found["status"]["paths"]) == 4


async def test_a_line_that_is_deleted_takes_its_agents_along(lined: World) -> None:
    found = await visit(lined)
    await lined.hub.delete(WAN_LINK, found)
    await lined.visit(WAN_LINK, "a-b")
    await lined.visit(WAN_LINK, "a-b")
    assert not await agents(lined.hub)
    assert not await agents(lined.remote)
    assert await lined.hub.get(WAN_LINK, "a-b") is None


async def test_an_end_that_is_no_member_any_more_is_not_waited_for(lined: World) -> None:
    found = await visit(lined)
    member = await lined.hub.get(MEMBER_CLUSTER, "site-b")
    assert member is not None
    await lined.hub.delete(MEMBER_CLUSTER, member)
    await lined.hub.delete(WAN_LINK, found)
    await lined.visit(WAN_LINK, "a-b")
    await lined.visit(WAN_LINK, "a-b")
    assert not await agents(lined.hub)
    assert await lined.hub.get(WAN_LINK, "a-b") is None


async def test_a_namespace_that_is_not_there(lined: World) -> None:
    member = await lined.hub.get(MEMBER_CLUSTER, "site-b")
    assert member is not None
    await lined.hub.delete(MEMBER_CLUSTER, member)
    spec = {**member["spec"], "agentNamespace": "elsewhere"}
    await lined.hub.create(MEMBER_CLUSTER, {**member, "metadata": {"name": "site-b"}, "spec": spec})
    await lined.meet_members()
    found = condition(await visit(lined), "Provisioned")
    assert (found["status"], found["reason"]) == ("False", "NamespaceNotFound")
    assert "namespace elsewhere does not exist on site-b; install chart pdd-member" in found["message"]


async def test_a_line_whose_end_cannot_be_asked_waits_and_says_so(lined: World) -> None:
    found = await visit(lined)
    member = lined.supervisor.context.members.get("site-b")
    assert member is not None
    member.connected = False
    await lined.hub.delete(WAN_LINK, found)
    left = await visit(lined)
    assert condition(left, "Ready")["reason"] == "Deleting"
    assert "waiting for site-b" in condition(left, "Ready")["message"]
    assert not await agents(lined.hub)
    member.connected = True
    await lined.visit(WAN_LINK, "a-b")
    await lined.visit(WAN_LINK, "a-b")
    assert await lined.hub.get(WAN_LINK, "a-b") is None
    assert not await agents(lined.remote)


async def test_a_router_that_may_not_be_looked_for_stops_nothing(lined: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PDDDeployment in a namespace that is not granted to the operator."""
    await lined.create()
    get = Session.get

    async def refused(session: Session, kind: Kind, name: str, namespace: str = "") -> Object | None:
        if name.endswith("main-router"):
            raise ApiError(403, "services is forbidden")
        return await get(session, kind, name, namespace)

    monkeypatch.setattr(Session, "get", refused)
    found = await visit(lined)
    assert condition(found, "Provisioned")["reason"] == "AgentsNotReady"
    assert config(await agents(lined.hub))["peers"][0]["router"] is None


async def test_measurements_that_may_not_be_read(lined: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await visit(lined)
    pod = {"metadata": {"name": "x", "namespace": SYSTEM}, "status": {"podIP": "10.0.0.1"}}

    async def forbidden(_session: Session, *_where: Any) -> dict[str, Any]:
        raise ApiError(403, "pods/proxy is forbidden")

    listed = Session.list

    async def with_a_pod(session: Session, kind: Kind, *where: Any, **more: Any) -> Any:
        return [pod] if kind is POD else await listed(session, kind, *where, **more)

    monkeypatch.setattr(Session, "through_pod", forbidden)
    monkeypatch.setattr(Session, "list", with_a_pod)
    found = condition(await visit(lined), "Provisioned")
    assert (found["status"], found["reason"]) == ("False", "Forbidden")
    assert "pods/proxy" in found["message"]


async def test_without_an_image(world: World) -> None:
    await world.meet_members()
    found = condition(await visit(world), "Provisioned")
    assert (found["status"], found["reason"]) == ("False", "NoImage")
    assert "linkImage" in found["message"]
