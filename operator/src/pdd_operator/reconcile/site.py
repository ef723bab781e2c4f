"""One member cluster during one visit to a PDDDeployment."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.apply import ForeignObjectError, apply, remove
from pdd_operator.clusters.errors import ApiError, ConflictError, UnreachableError
from pdd_operator.clusters.kinds import DEPLOYMENT, EVENT, OWNED, POD
from pdd_operator.clusters.registry import Member
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.labels import UID_LABEL, Manifest
from pdd_operator.plan.ownership import Key, key, surplus
from pdd_operator.plan.problem import Problem
from pdd_operator.status.deployment import SiteObservation
from pdd_operator.status.pods import living, mount_failures, waits_for_volumes

logger = logging.getLogger(__name__)

_SECONDS: Final = 20.0
"""For each step; a site that takes longer is left for the next visit, so the other one does not wait."""


class Site:
    """What was seen and done there. A step after a failed one does nothing."""

    def __init__(self, cluster: str, member: Member | None, deployment: PDDDeployment) -> None:
        self.cluster = cluster
        self._deployment = deployment
        self._session: Session | None = member.session if member and member.connected else None
        self._pods: list[Object] = []
        self._problems: list[Problem] = []
        self._mount_failures: dict[str, list[str]] = {}
        self.objects: dict[Key, Object] = {}
        self.reachable = self._session is not None

    @property
    def usable(self) -> bool:
        """Whether every step so far went well."""
        return self.reachable and not self._problems

    @property
    def observation(self) -> SiteObservation:
        """The site for the status."""
        return SiteObservation(
            cluster=self.cluster,
            reachable=self.reachable,
            workloads=[found for found in self.objects.values() if found["kind"] == DEPLOYMENT.kind],
            pods=self._pods,
            problems=self._problems,
            mount_failures=self._mount_failures,
        )

    @property
    def starting(self) -> bool:
        """Whether pods wait for their volumes. No watch tells when the kubelet finds that one cannot be mounted."""
        return any(map(waits_for_volumes, living(self._pods)))

    async def observe(self) -> None:
        """List everything of ours."""
        async with self._step() as session:
            if session is not None:
                objects, self._pods = await owned_objects(session, self._deployment)
                self.objects = {key(found): found for found in objects}
                if self.starting:
                    self._mount_failures = mount_failures(self._pods, await self._failed_mounts(session))

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply in order."""
        async with self._step() as session:
            if session is not None:
                applied = await apply(session, self._deployment, manifests, observed=self.objects)
                self.objects |= {key(found): found for found in applied}

    async def prune(self, desired: Iterable[Manifest]) -> None:
        """Remove what is ours and no longer wanted."""
        async with self._step() as session:
            if session is not None:
                await remove(
                    session,
                    surplus(self._deployment, observed=self.objects.values(), desired=desired),
                )

    async def _failed_mounts(self, session: Session) -> Sequence[Object]:
        """The kubelet's Events about volumes; none where an older chart pdd-member does not let them be read."""
        fields = "reason=FailedMount,involvedObject.kind=Pod"
        try:
            return await session.list(EVENT, self._deployment.metadata.namespace, fields=fields)
        except ApiError as error:
            logger.debug("events on %s: %s", self.cluster, error)
            return []

    @contextlib.asynccontextmanager
    async def _step(self) -> AsyncIterator[Session | None]:
        try:
            async with asyncio.timeout(_SECONDS):
                yield self._session if self.usable else None
        except (UnreachableError, TimeoutError):
            self.reachable = False
        except (ApiError, ForeignObjectError) as error:
            self._problems.append(as_problem(error, self.cluster, self._deployment.metadata.namespace))


async def owned_objects(session: Session, deployment: PDDDeployment) -> tuple[list[Object], list[Object]]:
    """The PDDDeployment's objects and its pods in a member."""
    namespace, selector = deployment.metadata.namespace, f"{UID_LABEL}={deployment.metadata.uid}"
    *owned, pods = await asyncio.gather(*(session.list(kind, namespace, selector=selector) for kind in (*OWNED, POD)))
    return [found for some in owned for found in some], list(pods)


def as_problem(error: ApiError | ForeignObjectError, cluster: str, namespace: str) -> Problem:
    """The error for a condition."""
    if isinstance(error, ForeignObjectError):
        return Problem(
            "ForeignObject",
            f"{error} on {cluster} exists and is not of this PDDDeployment; it is left as it is; "
            "remove it, or choose another name for the PDDDeployment",
        )
    if isinstance(error, ConflictError):
        return Problem("FieldConflict", f"on {cluster}: {error.message}; it is tried again", needs_help=False)
    if error.status == 403:
        return Problem(
            "Forbidden",
            f"on {cluster}: {error.message}; add namespace {namespace} to the chart pdd-member there",
        )
    if error.status == 404:
        return Problem(
            "NamespaceNotFound",
            f"namespace {namespace} does not exist on {cluster}; add it to the chart pdd-member there",
        )
    if error.status in {400, 422}:
        return Problem("Refused", f"{cluster} refuses an object: {error.message}")
    return Problem("ApiError", f"{cluster} answers {error.status}: {error.message}", needs_help=False)
