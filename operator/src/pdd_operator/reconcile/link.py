"""WANLink: read what front routers measured, write the status, wake the PDDDeployments on the line."""

import asyncio
import logging
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import PDD_DEPLOYMENT, WAN_LINK
from pdd_operator.context import Context
from pdd_operator.desired.front_router import telemetry_service
from pdd_operator.hub import timestamp, write_status
from pdd_operator.loops import Key
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import find
from pdd_operator.status.link import Report, link_status

logger = logging.getLogger(__name__)

_POLL: Final = 10.0
_SOON: Final = 2.0
_WRITE_SECONDS: Final = 30.0


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class _Quantiles(_Wire):
    p50: int
    p99: int


class _Link(_Wire):
    link: str
    peer: str
    reachable: bool
    rtt_micros: _Quantiles | None = None


class _Telemetry(_Wire):
    """`/telemetry` of a front router, as the contract has it."""

    links: list[_Link]


class LinkReconciler:
    """Remembers when it last wrote each link's numbers, to write them seldom."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    async def __call__(self, context: Context, key: Key) -> float | None:
        """One visit."""
        found = await context.hub.get(WAN_LINK, key.name)
        if found is None:
            self._written.pop(key.name, None)
            context.loops.wake(PDD_DEPLOYMENT.kind)
            return None
        link = WANLink.model_validate(found)

        seen = await _observe(context, link)
        if seen is None:
            return _SOON

        clock = asyncio.get_running_loop().time()
        due = clock - self._written.get(key.name, -_WRITE_SECONDS) >= _WRITE_SECONDS
        status = link_status(link, seen, numbers_due=due, now=timestamp())
        previous = link.status.conditions
        if await write_status(context.hub, WAN_LINK, found, status, previous=previous):
            self._written[key.name] = clock
            before, after = find(previous, "Ready"), find(status.conditions, "Ready")
            if before is None or after is None or before.status != after.status:
                context.loops.wake(PDD_DEPLOYMENT.kind)
        return _POLL


async def _observe(context: Context, link: WANLink) -> list[Report] | Problem | None:
    """The reports of all front routers on the link, or why there are none; None while too early to say."""
    objects = await context.hub.list(PDD_DEPLOYMENT)
    probing = [
        each
        for each in map(PDDDeployment.model_validate, objects)
        if link.joins(each.spec.prefill.cluster, each.main_placement.cluster)
        and not each.spec.suspend
        and not each.metadata.deletion_timestamp
    ]
    if not probing:
        return Problem("NoProbe", "no PDDDeployment uses the line, so nothing probes it", needs_help=False)
    if not all(context.members.met(each.spec.prefill.cluster) for each in probing):
        return None
    answers = await asyncio.gather(*(_reports(context, link, each) for each in probing))
    reports = [report for answer in answers if not isinstance(answer, Problem) for report in answer]
    problems = [answer for answer in answers if isinstance(answer, Problem)]
    if reports or not problems:
        return reports or Problem("NoProbe", "no front router has probed the line yet", needs_help=False)
    return problems[0]


async def _reports(context: Context, link: WANLink, deployment: PDDDeployment) -> list[Report] | Problem:
    about, site = deployment.metadata, deployment.spec.prefill.cluster
    member = context.members.get(site)
    if member is None or member.session is None or not member.connected:
        return Problem("MemberUnreachable", f"{site} cannot be reached", needs_help=False)
    service = telemetry_service(deployment)
    try:
        answer = await member.session.through_service(about.namespace, f"{service}:http", "telemetry")
        telemetry = _Telemetry.model_validate(answer)
    except (ApiError, UnreachableError, ValidationError) as error:
        logger.debug("telemetry of %s/%s on %s: %s", about.namespace, service, site, error)
        return Problem(
            "NoProbe",
            f"the front router of {about.namespace}/{about.name} on {site} does not report yet",
            needs_help=False,
        )
    return [
        Report(
            origin=site,
            peer=each.peer,
            reachable=each.reachable,
            p50_micros=each.rtt_micros.p50 if each.rtt_micros else None,
            p99_micros=each.rtt_micros.p99 if each.rtt_micros else None,
        )
        for each in telemetry.links
        if each.link == link.metadata.name
    ]
