"""One end of a line during one visit to its WANLink."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from pdd_operator.api.member_cluster import MemberCluster, NodePool
from pdd_operator.api.wan_link import WANLink
from pdd_operator.apply import remove
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE
from pdd_operator.clusters.registry import Member
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.link_agent import AGENT_PORT, PROBE_KEY, agent_name, link_owner
from pdd_operator.plan.nodes import Node
from pdd_operator.plan.problem import Problem
from pdd_operator.reconcile.visit import MemberVisit
from pdd_operator.status.link_directions import End
from pdd_operator.status.measurements import Measurements
from pdd_operator.status.pods import living
from pdd_operator.status.workloads import ready_pods

logger = logging.getLogger(__name__)

_KINDS: Final = (SERVICE, CONFIG_MAP, DEPLOYMENT, SECRET)


class LinkEnd(MemberVisit):
    """Its agents: what is there of them, and what they measured."""

    def __init__(self, cluster: str, member: Member | None, spec: MemberCluster | None, link: WANLink) -> None:
        namespace = spec.spec.agent_namespace if spec else ""
        super().__init__(cluster, member, link_owner(link, namespace), _KINDS)
        self._spec = spec
        self._name = agent_name(link)
        self._measurements: list[Measurements] = []
        self.nodes: Sequence[Node] = member.nodes if member else ()

    @property
    def pools(self) -> Sequence[NodePool]:
        """The chips' nodes, which agents leave free."""
        return self._spec.spec.node_pools if self._spec else ()

    @property
    def probe_key(self) -> str | None:
        """In base64; empty where there is none yet, None where that is not known."""
        if not self.usable:
            return None
        found = self.objects.get((SECRET.kind, self._name))
        return str((found or {}).get("data", {}).get(PROBE_KEY, ""))

    @property
    def gone(self) -> bool:
        """Whether nothing of the line's is left there."""
        if self._spec is None:
            return True
        return self.reachable and ((not self.objects and not self.pods) or self._has_no_rights)

    @property
    def seen(self) -> End:
        """The end for the status."""
        workload = self.objects.get((DEPLOYMENT.kind, self._name))
        return End(self.cluster, ready_pods(workload), self._measurements, self._problem())

    async def measure(self) -> None:
        """Read every agent, ready or not. One that does not answer says nothing."""
        if self._session is not None and self.usable:
            session = self._session
            answers = await asyncio.gather(*(_document(session, pod) for pod in living(self.pods)))
            self._measurements = [answer for answer in answers if answer is not None]

    async def remove(self) -> None:
        """Everything of the line's."""
        async with self.step() as session:
            if session is not None:
                await remove(
                    session, [each for each in self.objects.values() if not each["metadata"].get("deletionTimestamp")]
                )

    @property
    def _has_no_rights(self) -> bool:
        return any(problem.reason in {"Forbidden", "NamespaceNotFound"} for problem in self.problems)

    def _problem(self) -> Problem | None:
        if self._spec is None:
            return Problem("MemberClusterNotFound", f"there is no MemberCluster {self.cluster}; create it")
        if not self.reachable:
            return Problem("MemberUnreachable", f"{self.cluster} cannot be reached", needs_help=False)
        return self.problems[0] if self.problems else None


async def _document(session: Session, pod: Object) -> Measurements | None:
    if not pod.get("status", {}).get("podIP"):
        return None
    about = pod["metadata"]
    try:
        answer = await session.through_pod(about["namespace"], about["name"], AGENT_PORT, "v1/measurements")
        return Measurements.model_validate(answer)
    except (ApiError, UnreachableError, ValidationError) as error:
        logger.debug("measurements of pod %s/%s on %s: %s", about["namespace"], about["name"], session.name, error)
        return None
