"""What a test sees of the two clusters."""

import copy
import json
from dataclasses import dataclass
from typing import Any

from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import (
    DEPLOYMENT,
    MEMBER_CLUSTER,
    NAMESPACE,
    NODE,
    OWNED,
    PDD_DEPLOYMENT,
    POD,
    SECRET,
    WAN_LINK,
    Kind,
)
from pdd_operator.clusters.session import Object, Session
from pdd_operator.loops import Key
from pdd_operator.supervisor import Supervisor

SYSTEM = "pdd-system"


@dataclass
class World:
    """Hub and member, with one step of each kind's reconciler at hand."""

    hub: Session
    remote: Session
    supervisor: Supervisor
    namespace: str
    kubeconfig: str
    example: list[dict[str, Any]]

    async def set_up(self) -> None:
        """Namespaces, a node at the remote site, the Secret, members and the line."""
        for session in (self.hub, self.remote):
            await _ensure(session, NAMESPACE, {"metadata": {"name": self.namespace}})
        await self.ensure_system_namespace(self.hub)
        await self._remote_node()
        secret: Object = {
            "metadata": {"name": "site-b", "namespace": SYSTEM},
            "data": {"kubeconfig": self.kubeconfig},
        }
        await _ensure(self.hub, SECRET, secret)
        await self.hub.merge(SECRET, "site-b", SYSTEM, {"data": secret["data"]})
        for kind in (MEMBER_CLUSTER, WAN_LINK):
            for found in self.examples(kind):
                await _ensure(self.hub, kind, found)

    async def ensure_system_namespace(self, session: Session) -> None:
        """The namespace that the charts are installed in."""
        await _ensure(session, NAMESPACE, {"metadata": {"name": SYSTEM}})

    async def tear_down(self) -> None:
        """Take the hub's objects away, whatever state they are in; members keep what they have."""
        for kind in (PDD_DEPLOYMENT, WAN_LINK, MEMBER_CLUSTER):
            for found in await self.hub.list(kind):
                about = found["metadata"]
                await self.hub.delete(kind, found)
                body: Object = {"metadata": {"finalizers": None}}
                try:
                    await self.hub.merge(kind, about["name"], about.get("namespace", ""), body)
                except ApiError as error:
                    if error.status != 404:
                        raise

    def examples(self, kind: Kind) -> list[dict[str, Any]]:
        """The example objects of a kind."""
        found = [each for each in copy.deepcopy(self.example) if each["kind"] == kind.kind]
        for each in found:
            if kind.namespaced:
                each["metadata"]["namespace"] = self.namespace
        return found

    @property
    def deployment(self) -> dict[str, Any]:
        """The example PDDDeployment, in the test's namespace."""
        (found,) = self.examples(PDD_DEPLOYMENT)
        return found

    async def create(self, deployment: dict[str, Any] | None = None) -> Object:
        """Create the PDDDeployment."""
        return await self.hub.create(PDD_DEPLOYMENT, deployment or self.deployment)

    async def visit(self, kind: Kind, name: str) -> float | None:
        """One visit of the operator."""
        namespace = self.namespace if kind.namespaced else ""
        return await self.supervisor.visit(Key(kind.kind, name, namespace))

    async def meet_members(self) -> None:
        """The members' loops come round."""
        for name in ("site-a", "site-b"):
            await self.visit(MEMBER_CLUSTER, name)

    async def reconcile(self) -> Object:
        """Members, then the PDDDeployment; its state afterwards."""
        await self.meet_members()
        await self.visit(PDD_DEPLOYMENT, "assistant")
        return await self.read()

    async def read(self) -> Object:
        """The PDDDeployment."""
        found = await self.hub.get(PDD_DEPLOYMENT, "assistant", self.namespace)
        assert found is not None
        return found

    async def owned(self, session: Session) -> dict[tuple[str, str], Object]:
        """Everything with the operator's label in the test's namespace of a cluster."""
        return {
            (found["kind"], found["metadata"]["name"]): found
            for kind in OWNED
            for found in await session.list(kind, self.namespace, selector="app.kubernetes.io/managed-by=pdd-operator")
        }

    async def versions(self) -> dict[str, str]:
        """resourceVersion of everything that the operator could write to."""
        versions = {}
        for session in (self.hub, self.remote):
            for key, found in (await self.owned(session)).items():
                versions[f"{session.name} {key}"] = found["metadata"]["resourceVersion"]
        for kind in (PDD_DEPLOYMENT, WAN_LINK, MEMBER_CLUSTER):
            for found in await self.hub.list(kind):
                versions[f"{kind.kind} {found['metadata']['name']}"] = found["metadata"]["resourceVersion"]
        return versions

    async def pretend_ready(self) -> None:
        """Report every Deployment as rolled out, as kube-controller-manager would."""
        for session in (self.hub, self.remote):
            for (kind, _), found in (await self.owned(session)).items():
                if kind == DEPLOYMENT.kind:
                    await session.replace_status(DEPLOYMENT, {**found, "status": _rolled_out(found)})

    async def front_router_pod(self, number: int, **status: Any) -> Object:
        """A pod of the front router, as kube-controller-manager and a kubelet would have it."""
        template = (await self.owned(self.hub))["Deployment", "assistant-front-router"]["spec"]["template"]
        name = f"assistant-front-router-{number}"
        # The ServiceAccount's token is somebody else's work, and none is needed.
        spec = {**template["spec"], "automountServiceAccountToken": False}
        metadata = {**template["metadata"], "name": name, "namespace": self.namespace}
        pod = await self.hub.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return await self.hub.replace_status(POD, {**pod, "status": {"phase": "Running", **status}})

    async def front_config(self) -> dict[str, Any]:
        """The front router's configuration."""
        found = (await self.owned(self.hub))["ConfigMap", "assistant-front-router"]
        config: dict[str, Any] = json.loads(found["data"]["router.json"])
        return config

    async def _remote_node(self) -> None:
        labels = {"pdd.dev/pool": "memory"}
        await _ensure(self.remote, NODE, {"metadata": {"name": "b1", "labels": labels}})
        found = await self.remote.get(NODE, "b1")
        assert found is not None
        status = {
            "addresses": [{"type": "InternalIP", "address": "10.9.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": {"example.com/chip-b": "8"},
            "allocatable": {"example.com/chip-b": "8"},
        }
        await self.remote.replace_status(NODE, {**found, "status": status})


async def _ensure(session: Session, kind: Kind, body: dict[str, Any]) -> None:
    try:
        await session.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body})
    except ApiError as error:
        if error.status != 409:
            raise


def _rolled_out(found: Object) -> Object:
    wanted = found["spec"]["replicas"]
    return {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": wanted,
        "availableReplicas": wanted,
    }


def condition(found: Object, kind: str) -> dict[str, Any]:
    """A condition of an object."""
    conditions: list[dict[str, Any]] = found["status"]["conditions"]
    return next(each for each in conditions if each["type"] == kind)
