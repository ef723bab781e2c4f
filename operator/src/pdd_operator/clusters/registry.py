"""The members: spec, session, watches and last known nodes of each."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.clusters.credentials import client_from
from pdd_operator.clusters.kinds import DEPLOYMENT, NODE, POD
from pdd_operator.clusters.session import Object, Session
from pdd_operator.clusters.watch import wake_on_change
from pdd_operator.desired.labels import MANAGED_BY_LABEL, MANAGER
from pdd_operator.plan.nodes import Node

OURS = f"{MANAGED_BY_LABEL}={MANAGER}"


@dataclass
class Member:
    """A registered member. `session` is None until its credentials were read."""

    cluster: MemberCluster
    session: Session | None = None
    connected: bool = False
    met: bool = False
    """Whether its loop has come round once, so that `connected` means something."""
    cluster_uid: str = ""
    nodes: Sequence[Node] = ()
    counted_at: float | None = None
    """When nodes and chips were last counted, on the event loop's clock; None when they are to be counted."""
    fingerprint: str = ""
    watches: dict[str, list[asyncio.Task[None]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The MemberCluster's name."""
        return self.cluster.metadata.name


class Registry:
    """All members by name. Connecting happens in each member's own loop, so none waits for another."""

    def __init__(
        self,
        *,
        hub: Session,
        node_changed: Callable[[str], None],
        object_changed: Callable[[str, Object | None], None],
    ) -> None:
        self._hub = hub
        self._members: dict[str, Member] = {}
        self._node_changed = node_changed
        self._object_changed = object_changed

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, name: str) -> Member | None:
        """The member of that name."""
        return self._members.get(name)

    def enter(self, cluster: MemberCluster) -> Member:
        """Register a member, or take in its changed spec."""
        member = self._members.setdefault(cluster.metadata.name, Member(cluster))
        member.cluster = cluster
        return member

    async def connect(self, member: Member, kubeconfig: str | None) -> Session:
        """The member's session; a new one when the credentials changed. None means the hub itself."""
        fingerprint = hashlib.sha256((kubeconfig or "").encode()).hexdigest()
        if member.session is not None and member.fingerprint == fingerprint:
            return member.session
        await self._disconnect(member)
        session = self._hub if kubeconfig is None else Session(member.name, client_from(kubeconfig))
        member.session, member.fingerprint = session, fingerprint
        name = member.name
        member.watches[""] = [
            asyncio.create_task(wake_on_change(session, NODE, "", selector="", wake=lambda _: self._node_changed(name)))
        ]
        return session

    def namesake(self, member: Member, cluster_uid: str) -> str | None:
        """Another member that is the same cluster and came first."""
        others = (each for each in self if each is not member and each.connected)
        return next((each.name for each in others if each.cluster_uid == cluster_uid), None)

    def count_again(self, name: str) -> None:
        """Nodes or chips of the member changed."""
        member = self.get(name)
        if member is not None:
            member.counted_at = None

    def met(self, name: str) -> bool:
        """Whether the member was tried since the operator started."""
        member = self.get(name)
        return member is not None and member.met

    def watch(self, name: str, namespace: str) -> None:
        """Have changes of our objects in a namespace of the member wake their PDDDeployment."""
        member = self.get(name)
        if member is None or member.session is None or namespace in member.watches:
            return

        def wake(found: Object | None) -> None:
            self._object_changed(namespace, found)

        member.watches[namespace] = [
            asyncio.create_task(wake_on_change(member.session, kind, namespace, selector=OURS, wake=wake))
            for kind in (DEPLOYMENT, POD)
        ]

    def unwatch(self, namespace: str) -> None:
        """No PDDDeployment is left in the namespace."""
        for member in self:
            for task in member.watches.pop(namespace, []):
                task.cancel()

    async def drop(self, name: str) -> None:
        """Forget a member. What runs there goes on."""
        member = self._members.pop(name, None)
        if member is not None:
            await self._disconnect(member)

    async def close(self) -> None:
        """Forget all members."""
        for name in list(self._members):
            await self.drop(name)

    async def _disconnect(self, member: Member) -> None:
        for task in [task for tasks in member.watches.values() for task in tasks]:
            task.cancel()
        member.watches.clear()
        session, member.session, member.connected = member.session, None, False
        member.counted_at = None
        if session is not None and session is not self._hub:
            await session.close()
