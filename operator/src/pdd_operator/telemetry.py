"""What the front routers of a PDDDeployment answer on `/telemetry`: read once, for its line and for itself."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import ValidationError

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import POD
from pdd_operator.clusters.registry import Registry
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.labels import COMPONENT_LABEL, FRONT_ROUTER, UID_LABEL
from pdd_operator.desired.router import ROUTER_PORT
from pdd_operator.plan.problem import Problem
from pdd_operator.status.compatibility import kv_compatible
from pdd_operator.status.conditions import Finding
from pdd_operator.status.pods import living
from pdd_operator.status.telemetry import FrontTelemetry

logger = logging.getLogger(__name__)

_FRESH: Final = 15.0
"""Longer than the period in which a line's loop reads."""

Answers = Sequence[FrontTelemetry] | Problem


class Telemetry:
    """The last answers of each PDDDeployment's front routers."""

    def __init__(self, members: Registry, *, changed: Callable[[PDDDeployment], None]) -> None:
        self._members = members
        self._changed = changed
        self._last: dict[tuple[str, str], tuple[float, Answers]] = {}

    async def read(self, deployment: PDDDeployment) -> Answers:
        """Ask now; `changed` is called where the engines no longer compare as they did."""
        key = deployment.metadata.namespace, deployment.metadata.name
        answers = await self._ask(deployment)
        before = self._last.get(key)
        self._last[key] = asyncio.get_running_loop().time(), answers
        if before is not None and _compared(deployment, before[1]) != _compared(deployment, answers):
            self._changed(deployment)
        return answers

    async def recent(self, deployment: PDDDeployment) -> Answers:
        """What was read lately, or what is answered now."""
        last = self._last.get((deployment.metadata.namespace, deployment.metadata.name))
        if last is not None and asyncio.get_running_loop().time() - last[0] < _FRESH:
            return last[1]
        return await self.read(deployment)

    def forget(self, namespace: str, name: str) -> None:
        """The PDDDeployment is gone."""
        self._last.pop((namespace, name), None)

    async def _ask(self, deployment: PDDDeployment) -> Answers:
        """Every front router, ready or not: each sees the line and the engines by itself."""
        about, site = deployment.metadata, deployment.spec.prefill.cluster
        member = self._members.get(site)
        if member is None or member.session is None or not member.connected:
            return Problem("MemberUnreachable", f"{site} cannot be reached", needs_help=False)
        selector = f"{UID_LABEL}={about.uid},{COMPONENT_LABEL}={FRONT_ROUTER}"
        try:
            pods = await member.session.list(POD, about.namespace, selector=selector)
        except (ApiError, UnreachableError) as error:
            logger.debug("front routers of %s/%s on %s: %s", about.namespace, about.name, site, error)
            pods = []
        answers = await asyncio.gather(*(_document(member.session, pod) for pod in living(pods)))
        documents = [answer for answer in answers if answer is not None]
        if documents:
            return documents
        return Problem(
            "NoProbe",
            f"the front router of {about.namespace}/{about.name} on {site} does not report yet",
            needs_help=False,
        )


async def _document(session: Session, pod: Object) -> FrontTelemetry | None:
    if not pod.get("status", {}).get("podIP"):
        return None
    about = pod["metadata"]
    try:
        answer = await session.through_pod(about["namespace"], about["name"], ROUTER_PORT, "telemetry")
        return FrontTelemetry.model_validate(answer)
    except (ApiError, UnreachableError, ValidationError) as error:
        logger.debug("telemetry of pod %s/%s on %s: %s", about["namespace"], about["name"], session.name, error)
        return None


def _compared(deployment: PDDDeployment, answers: Answers) -> Finding:
    return kv_compatible(answers, prefill_site=deployment.spec.prefill.cluster)
