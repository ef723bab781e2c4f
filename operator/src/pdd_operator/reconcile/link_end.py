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
from pdd_operator.plan.ownership import owned
from pdd_operator.plan.problem import Problem
from pdd_operator.reconcile.visit import MemberVisit, as_problem, namespace_is_gone
from pdd_operator.status.link_directions import End
from pdd_operator.status.measurements import Measurements
from pdd_operator.status.pods import living
from pdd_operator.status.workloads import ready_pods

logger = logging.getLogger(__name__)

_KINDS: Final = (SERVICE, CONFIG_MAP, DEPLOYMENT)


class LinkEnd(MemberVisit):
    """Its agents: what is there of them, and what they measured."""

    def __init__(self, cluster: str, member: Member | None, spec: MemberCluster | None, link: WANLink) -> None:
        namespace = spec.spec.agent_namespace if spec else ""
        super().__init__(cluster, member, link_owner(link, namespace), _KINDS)
        self._spec = spec
        self._name = agent_name(link)
        self._measurements: list[Measurements] = []
        self._unprovided: Problem | None = None
        self.nodes: Sequence[Node] = member.nodes if member else ()

    async def observe(self) -> None:
        """List what is the line's. Its Secret is asked for by name: the namespace has others, which are not read."""
        await super().observe()
        async with self.step() as session:
            if session is not None:
                found = await session.get(SECRET, self._name, self.owner.namespace)
                if found is not None and owned(self.owner, found):
                    self.objects[SECRET.kind, self._name] = found

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

    async def left(self) -> Problem | None:
        """What of the line's is there, or why that is not known; None once nothing is."""
        if self._spec is None:
            return None
        if not self.reachable:
            return Problem(
                "MemberUnreachable",
                f"waiting for {self.cluster}: it cannot be reached, and may still hold agents of this line",
                needs_help=False,
            )
        if self.problems:
            gone = self._session is not None and await namespace_is_gone(self._session, self.owner.namespace)
            return None if gone else self.problems[0]
        count = len(self.objects) + len(self.pods)
        if not count:
            return None
        return Problem("Deleting", f"waiting for objects to go on {self.cluster}: {count} left", needs_help=False)

    def without_image(self) -> None:
        """No agents can be installed. Those of before are read all the same."""
        self._unprovided = Problem("NoImage", "no link agents are installed: set linkImage in chart pdd-operator")

    @property
    def seen(self) -> End:
        """The end for the status."""
        workload = self.objects.get((DEPLOYMENT.kind, self._name))
        return End(self.cluster, ready_pods(workload), self._measurements, self._problem())

    async def measure(self) -> None:
        """Read every agent, ready or not. One that does not answer says nothing."""
        if self._session is None or not self.usable:
            return
        session = self._session
        answers = await asyncio.gather(*(self._document(session, pod) for pod in living(self.pods)))
        self._measurements = [answer for answer in answers if answer is not None]

    async def remove(self) -> None:
        """Everything of the line's."""
        async with self.step() as session:
            if session is not None:
                await remove(
                    session, [each for each in self.objects.values() if not each["metadata"].get("deletionTimestamp")]
                )

    def _problem(self) -> Problem | None:
        if self._spec is None:
            return Problem("MemberClusterNotFound", f"there is no MemberCluster {self.cluster}; create it")
        if not self.reachable:
            return Problem("MemberUnreachable", f"{self.cluster} cannot be reached", needs_help=False)
        return self.problems[0] if self.problems else self._unprovided

    async def _document(self, session: Session, pod: Object) -> Measurements | None:
        if not pod.get("status", {}).get("podIP"):
            return None
        about = pod["metadata"]
        try:
            answer = await session.through_pod(about["namespace"], about["name"], AGENT_PORT, "v1/measurements")
            return Measurements.model_validate(answer)
        except (ApiError, UnreachableError, ValidationError) as error:
            if isinstance(error, ApiError) and error.status == 403:
                self._unprovided = as_problem(error, self.cluster, self.owner)
            where = f"{about['namespace']}/{about['name']} on {session.name}"
            logger.debug("measurements of pod %s: %s", where, error)
            return None
