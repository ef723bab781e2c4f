"""The operator's process: rights, kill -9, size, silence at rest."""

import asyncio
import base64
import pathlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pdd_operator.clusters.kinds import MEMBER_CLUSTER, PDD_DEPLOYMENT, SECRET, WAN_LINK

from .control_plane import Cluster
from .operator_process import OperatorProcess, grant, kubeconfig_with, token
from .test_reconcile import HERE, THERE
from .world import SYSTEM, World, condition

pytestmark = pytest.mark.apiserver


async def until(what: str, holds: Callable[[], Awaitable[bool]], *, seconds: float = 60) -> None:
    """Wait for it, or say what did not come."""
    for _ in range(int(seconds / 0.2)):
        if await holds():
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


@pytest.fixture
async def process(world: World, clusters: dict[str, Cluster], tmp_path: pathlib.Path) -> AsyncIterator[OperatorProcess]:
    """The operator with the charts' rights; it is killed at the end."""
    namespaces = [{"name": world.namespace}]
    subject = {"name": "pdd-operator", "namespace": SYSTEM}
    await grant(world.hub, "pdd-operator", {"image": {"reference": "operator:1"}})
    await grant(world.hub, "pdd-member", {"namespaces": namespaces, "subject": subject})
    await world.ensure_system_namespace(world.remote)
    await grant(world.remote, "pdd-member", {"namespaces": namespaces})

    remote = kubeconfig_with(clusters["site-b"].kubeconfig.read_text(), await token(world.remote))
    encoded = base64.b64encode(remote.encode()).decode()
    await world.hub.merge(SECRET, "site-b", SYSTEM, {"data": {"kubeconfig": encoded}})
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_with(clusters["site-a"].kubeconfig.read_text(), await token(world.hub)))
    operator = OperatorProcess(kubeconfig, tmp_path / "operator.log")
    operator.start()
    yield operator
    await operator.kill()


async def _complete(world: World) -> bool:
    here, there = await asyncio.gather(world.owned(world.hub), world.owned(world.remote))
    return set(here) == HERE and set(there) == THERE


async def _reported(world: World, kind: str, status: str) -> bool:
    found = await world.read()
    known = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", [])}
    return known.get(kind) == status


async def _gone(world: World) -> bool:
    return await world.hub.get(PDD_DEPLOYMENT, "assistant", world.namespace) is None


async def test_killed_at_any_moment_it_converges(world: World, process: OperatorProcess) -> None:
    moments = random.Random(20)
    created = await world.create()
    for _ in range(3):
        await until("a first object in the hub", lambda: _any(world))
        await asyncio.sleep(moments.uniform(0, 0.6))
        await process.kill()
        process.start()
    await until("every object at both sites", lambda: _complete(world))
    await until("a status", lambda: _reported(world, "Reconciling", "True"))

    await world.hub.delete(PDD_DEPLOYMENT, created)
    await until("the deletion under way", lambda: _fewer(world))
    await process.kill()
    process.start()
    await until("the PDDDeployment to go", lambda: _gone(world))
    assert not await world.owned(world.hub)
    assert not await world.owned(world.remote)


async def _any(world: World) -> bool:
    return bool(await world.owned(world.hub))


async def _fewer(world: World) -> bool:
    return not await _complete(world)


async def test_small_silent_and_within_its_rights(world: World, process: OperatorProcess) -> None:
    await world.create()
    await until("every object at both sites", lambda: _complete(world))
    await world.pretend_ready()
    await until("Ready", lambda: _reported(world, "Ready", "True"))
    await until("the members' status", lambda: _members_ready(world))
    await until("the link's status", lambda: _link_known(world))
    await asyncio.sleep(5)  # loops wake each other once more
    before = await world.versions()

    await asyncio.sleep(12)  # the link's loop comes round every 10 s

    assert await world.versions() == before
    assert process.resident_megabytes() < 120
    log = process.log.read_text()
    assert "orbidden" not in log
    assert "Traceback" not in log
    assert process.kubeconfig.read_text().split("token: ")[1].split()[0] not in log


async def _members_ready(world: World) -> bool:
    found = await world.hub.list(MEMBER_CLUSTER)
    return all("status" in each and condition(each, "Ready")["status"] == "True" for each in found)


async def _link_known(world: World) -> bool:
    found = await world.hub.get(WAN_LINK, "a-b")
    return found is not None and "status" in found
