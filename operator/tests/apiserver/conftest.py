"""Two API servers, `site-a` (the hub) and `site-b`, with the CRDs and the objects that tests start from."""

import asyncio
import base64
import pathlib
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml

from pdd_operator.api.crd import definitions
from pdd_operator.clusters.credentials import client_from
from pdd_operator.clusters.kinds import Kind
from pdd_operator.clusters.session import Session
from pdd_operator.desired.sites import Images
from pdd_operator.settings import Settings
from pdd_operator.supervisor import Supervisor

from .control_plane import Cluster, binary, control_planes
from .world import World

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "two-sites.yaml"
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """The API servers, up for the whole session."""
    try:
        binary("etcd"), binary("kube-apiserver")
    except KeyError as missing:
        pytest.skip(missing.args[0])  # says which binary, and that `make binaries` builds it; CI has them
    with control_planes(["site-a", "site-b"], tmp_path_factory.mktemp("apiserver")) as running:
        asyncio.run(_install_crds(running["site-a"]))
        yield running


async def _install_crds(hub: Cluster) -> None:
    session = Session("hub", client_from(hub.kubeconfig.read_text()))
    try:
        for definition in definitions():
            await session.create(CRD, definition)
        for definition in definitions():
            await _established(session, definition["metadata"]["name"])
    finally:
        await session.close()


async def _established(session: Session, name: str) -> None:
    for _ in range(100):
        found: dict[str, Any] = await session.get(CRD, name) or {}
        conditions = found.get("status", {}).get("conditions") or []
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"CRD {name} was not established")


@pytest.fixture
async def world(clusters: dict[str, Cluster]) -> AsyncIterator[World]:
    """Both API servers with a namespace of the test's own, nodes, and a supervisor without kopf."""
    sessions = {name: Session(name, client_from(each.kubeconfig.read_text())) for name, each in clusters.items()}
    supervisor = Supervisor(sessions["site-a"], Settings(Images(engine="engine:1", router="router:1")))
    world = World(
        hub=sessions["site-a"],
        remote=sessions["site-b"],
        supervisor=supervisor,
        namespace=f"t-{uuid.uuid4().hex[:12]}",
        kubeconfig=base64.b64encode(clusters["site-b"].kubeconfig.read_bytes()).decode(),
        example=list(yaml.safe_load_all(EXAMPLE.read_text())),
    )
    await world.set_up()
    yield world
    await world.tear_down()
    await supervisor.context.loops.close()
    await supervisor.context.members.close()
    for session in sessions.values():
        await session.close()
