"""The running operator: puts hub, members, loops and reconcilers together."""

from collections.abc import Awaitable, Callable

from pdd_operator.clusters.kinds import MEMBER_CLUSTER, PDD_DEPLOYMENT, WAN_LINK, Kind
from pdd_operator.clusters.registry import Registry
from pdd_operator.clusters.session import Object, Session
from pdd_operator.context import Context
from pdd_operator.desired.labels import INSTANCE_LABEL
from pdd_operator.loops import Key, Loops
from pdd_operator.reconcile.deployment import reconcile_deployment
from pdd_operator.reconcile.link import LinkReconciler
from pdd_operator.reconcile.member import reconcile_member
from pdd_operator.settings import Settings
from pdd_operator.telemetry import Telemetry

_Version = tuple[object, ...]


class Supervisor:
    """Takes events of the hub and of the members, and wakes loops."""

    def __init__(self, hub: Session, settings: Settings) -> None:
        loops = Loops(self.visit)
        members = Registry(
            hub=hub,
            node_changed=self._node_changed,
            object_changed=lambda namespace, found: loops.wake(PDD_DEPLOYMENT.kind, _instance(found), namespace),
        )
        self.context = Context(
            hub=hub,
            members=members,
            loops=loops,
            telemetry=Telemetry(
                members,
                changed=lambda each: loops.wake(PDD_DEPLOYMENT.kind, each.metadata.name, each.metadata.namespace),
            ),
            settings=settings,
        )
        self._reconcilers: dict[str, Callable[[Context, Key], Awaitable[float | None]]] = {
            MEMBER_CLUSTER.kind: reconcile_member,
            WAN_LINK.kind: LinkReconciler(),
            PDD_DEPLOYMENT.kind: reconcile_deployment,
        }
        self._versions: dict[Key, _Version] = {}

    async def visit(self, key: Key) -> float | None:
        """Reconcile an object once."""
        return await self._reconcilers[key.kind](self.context, key)

    async def stop(self) -> None:
        """Stop all loops and close all connections."""
        await self.context.loops.close()
        await self.context.members.close()
        await self.context.hub.close()

    def changed(self, kind: Kind, event: str | None, found: Object) -> None:
        """An object of the hub was listed, added, changed or deleted.

        Changes of status and annotations, the operator's own writes among them, wake nobody.
        """
        about = found["metadata"]
        key = Key(kind.kind, about["name"], about.get("namespace", ""))
        version = about["uid"], about["generation"], about.get("deletionTimestamp")
        if event == "MODIFIED" and self._versions.get(key) == version:
            return
        self._versions[key] = version
        if event == "DELETED":
            del self._versions[key]
        self.context.loops.start(key)
        if kind is WAN_LINK:
            self.context.loops.wake(PDD_DEPLOYMENT.kind)

    def _node_changed(self, member: str) -> None:
        self.context.members.count_again(member)
        self.context.loops.wake(MEMBER_CLUSTER.kind, member)

    def overdue(self) -> list[str]:
        """Objects whose loop hangs."""
        return self.context.loops.overdue()


def _instance(found: Object | None) -> str | None:
    """The PDDDeployment that an object in a member belongs to; None stands for any."""
    if found is None:
        return None
    return (found["metadata"].get("labels") or {}).get(INSTANCE_LABEL)
