"""WANLink: read what front routers measured, write the status, wake the PDDDeployments on the line."""

import asyncio
from typing import Final

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink
from pdd_operator.clusters.kinds import PDD_DEPLOYMENT, WAN_LINK
from pdd_operator.context import Context
from pdd_operator.hub import timestamp, write_status
from pdd_operator.loops import Key
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import find
from pdd_operator.status.link import Report, link_status
from pdd_operator.status.telemetry import FrontTelemetry

_POLL: Final = 10.0
_SOON: Final = 2.0
_WRITE_SECONDS: Final = 30.0


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
    answers = await asyncio.gather(*map(context.telemetry.read, probing))
    reports = [
        report
        for deployment, answer in zip(probing, answers, strict=True)
        if not isinstance(answer, Problem)
        for document in answer
        for report in _reports(document, link, deployment)
    ]
    problems = [answer for answer in answers if isinstance(answer, Problem)]
    if reports or not problems:
        return reports or Problem("NoProbe", "no front router has probed the line yet", needs_help=False)
    return problems[0]


def _reports(document: FrontTelemetry, link: WANLink, deployment: PDDDeployment) -> list[Report]:
    return [
        Report(
            origin=deployment.spec.prefill.cluster,
            peer=each.peer,
            reachable=each.reachable,
            p50_micros=each.rtt_micros.p50 if each.rtt_micros else None,
            p99_micros=each.rtt_micros.p99 if each.rtt_micros else None,
        )
        for each in document.links
        if each.link == link.metadata.name
    ]
