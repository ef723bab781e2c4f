"""One member cluster during one visit to a PDDDeployment."""

import logging
from collections.abc import Sequence

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import DEPLOYMENT, EVENT, OWNED
from pdd_operator.clusters.registry import Member
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.labels import owner
from pdd_operator.reconcile.visit import MemberVisit
from pdd_operator.status.deployment import SiteObservation
from pdd_operator.status.pods import living, mount_failures, waits_for_volumes

logger = logging.getLogger(__name__)


class Site(MemberVisit):
    """A site of a PDDDeployment: also why its pods do not start."""

    def __init__(self, cluster: str, member: Member | None, deployment: PDDDeployment) -> None:
        super().__init__(cluster, member, owner(deployment), OWNED)
        self._mount_failures: dict[str, list[str]] = {}

    @property
    def observation(self) -> SiteObservation:
        """The site for the status."""
        return SiteObservation(
            cluster=self.cluster,
            reachable=self.reachable,
            workloads=[found for found in self.objects.values() if found["kind"] == DEPLOYMENT.kind],
            pods=self.pods,
            problems=self.problems,
            mount_failures=self._mount_failures,
        )

    @property
    def starting(self) -> bool:
        """Whether pods wait for their volumes. No watch tells when the kubelet finds that one cannot be mounted."""
        return any(map(waits_for_volumes, living(self.pods)))

    async def observe(self) -> None:
        """List everything of ours."""
        await super().observe()
        async with self.step() as session:
            if session is not None and self.starting:
                self._mount_failures = mount_failures(self.pods, await self._failed_mounts(session))

    async def _failed_mounts(self, session: Session) -> Sequence[Object]:
        """The kubelet's Events about volumes; none where an older chart pdd-member does not let them be read."""
        fields = "reason=FailedMount,involvedObject.kind=Pod"
        try:
            return await session.list(EVENT, self.owner.namespace, fields=fields)
        except ApiError as error:
            logger.debug("events on %s: %s", self.cluster, error)
            return []
