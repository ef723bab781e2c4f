"""WANLink: link agents at both ends, what they and the front routers measure, the status, and who waits for it."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final

from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import MEMBER_CLUSTER, PDD_DEPLOYMENT, SERVICE, WAN_LINK
from pdd_operator.clusters.session import Object
from pdd_operator.context import Context
from pdd_operator.desired.labels import MAIN_ROUTER, object_name
from pdd_operator.desired.link_agent import OtherEnd, agent_keys, agent_name, agent_service, link_agent
from pdd_operator.hub import FINALIZER, set_finalizer, timestamp, write_status
from pdd_operator.loops import Key
from pdd_operator.plan.link_key import shared_key
from pdd_operator.plan.nodes import addresses
from pdd_operator.plan.problem import Problem
from pdd_operator.reconcile.link_end import LinkEnd
from pdd_operator.status.conditions import find
from pdd_operator.status.link import link_deletion_status, link_status
from pdd_operator.status.link_directions import Report
from pdd_operator.status.telemetry import FrontTelemetry

logger = logging.getLogger(__name__)

_POLL: Final = 5.0
_SOON: Final = 2.0
_WRITE_SECONDS: Final = 30.0
_MOST_ADDRESSES: Final = 2
"""Of the other end's agents that each agent probes: it costs the line, and each address leads to one agent."""


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
        clusters = [end.cluster for end in link.spec.ends]
        members = {each: await _member(context, each) for each in clusters}
        if any(cluster is not None and not context.members.met(each) for each, cluster in members.items()):
            return _SOON
        ends = [LinkEnd(each, context.members.get(each), members[each], link) for each in clusters]
        if link.metadata.deletion_timestamp:
            return await _tear_down(context, found, link, ends)
        if FINALIZER not in link.metadata.finalizers:
            found = await set_finalizer(context.hub, WAN_LINK, found, present=True)

        deployments = await _on(context, link)
        await asyncio.gather(*(end.observe() for end in ends))
        await _roll_forward(context, link, ends, deployments)
        reports = await _reports(context, link, deployments)
        await asyncio.gather(*(end.measure() for end in ends))
        await self._report(context, found, link, ends, reports)
        return _POLL

    async def _report(
        self, context: Context, found: Object, link: WANLink, ends: Sequence[LinkEnd], reports: Sequence[Report]
    ) -> None:
        clock = asyncio.get_running_loop().time()
        due = clock - self._written.get(link.metadata.name, -_WRITE_SECONDS) >= _WRITE_SECONDS
        status = link_status(link, [end.seen for end in ends], reports, numbers_due=due, now=timestamp())
        previous = link.status.conditions
        if await write_status(context.hub, WAN_LINK, found, status, previous=previous):
            self._written[link.metadata.name] = clock
            before, after = find(previous, "Ready"), find(status.conditions, "Ready")
            if before is None or after is None or before.status != after.status:
                context.loops.wake(PDD_DEPLOYMENT.kind)


async def _member(context: Context, name: str) -> MemberCluster | None:
    found = await context.hub.get(MEMBER_CLUSTER, name)
    return None if found is None else MemberCluster.model_validate(found)


async def _on(context: Context, link: WANLink) -> list[PDDDeployment]:
    """The PDDDeployments that use the line, by name."""
    objects = await context.hub.list(PDD_DEPLOYMENT)
    using = [
        each
        for each in map(PDDDeployment.model_validate, objects)
        if link.joins(each.spec.prefill.cluster, each.main_placement.cluster)
        and not each.spec.suspend
        and not each.metadata.deletion_timestamp
    ]
    return sorted(using, key=lambda each: (each.metadata.namespace, each.metadata.name))


async def _roll_forward(
    context: Context, link: WANLink, ends: Sequence[LinkEnd], deployments: Sequence[PDDDeployment]
) -> None:
    """Service and keys first: each end's agents are told where the other's answer."""
    image = context.settings.link_image
    if not image:
        for end in ends:
            end.without_image()
        return
    # No new one while an end cannot be asked: it may hold a key.
    key = shared_key([end.probe_key for end in ends], secrets.token_bytes)
    await asyncio.gather(
        *(
            end.apply([agent_service(end.owner, link), agent_keys(end.owner, link, held)])
            for end in ends
            if (held := key or end.probe_key)
        )
    )
    # An end whose other end cannot be asked keeps the peers that it knows: it is left as it is.
    pairs = [(one, other) for one, other in ((ends[0], ends[1]), (ends[1], ends[0])) if one.usable and other.usable]
    theres = [
        OtherEnd(other.cluster, _agents(other, link), await _router(context, other.cluster, deployments))
        for _, other in pairs
    ]
    await asyncio.gather(
        *(
            end.apply(link_agent(end.owner, link, site=end.cluster, other=there, pools=end.pools, image=image))
            for (end, _), there in zip(pairs, theres, strict=True)
        )
    )


def _agents(end: LinkEnd, link: WANLink) -> Sequence[str]:
    return addresses(end.nodes, end.objects[SERVICE.kind, agent_name(link)], at_most=_MOST_ADDRESSES)


async def _router(context: Context, cluster: str, deployments: Sequence[PDDDeployment]) -> str | None:
    """A router of the site that the other one connects to: the first main router of a PDDDeployment that is found."""
    member = context.members.get(cluster)
    if member is None or member.session is None:
        return None
    for each in deployments:
        if each.main_placement.cluster != cluster:
            continue
        try:
            service = await member.session.get(SERVICE, object_name(each, MAIN_ROUTER), each.metadata.namespace)
        except (ApiError, UnreachableError) as error:
            logger.debug("main router of %s/%s on %s: %s", each.metadata.namespace, each.metadata.name, cluster, error)
            continue
        if service is not None and (found := addresses(member.nodes, service, at_most=1)):
            return found[0]
    return None


async def _reports(context: Context, link: WANLink, deployments: Sequence[PDDDeployment]) -> list[Report]:
    """Of all front routers on the line."""
    answers = await asyncio.gather(*map(context.telemetry.read, deployments))
    return [
        report
        for deployment, answer in zip(deployments, answers, strict=True)
        if not isinstance(answer, Problem)
        for document in answer
        for report in _of(document, link, deployment)
    ]


def _of(document: FrontTelemetry, link: WANLink, deployment: PDDDeployment) -> list[Report]:
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


async def _tear_down(context: Context, found: Object, link: WANLink, ends: Sequence[LinkEnd]) -> float | None:
    """The agents go with the line; an end that cannot be asked is waited for, one that is no member any more is not."""
    if FINALIZER not in link.metadata.finalizers:
        return None
    await asyncio.gather(*(end.observe() for end in ends))
    await asyncio.gather(*(end.remove() for end in ends))
    left = [problem for end in ends if (problem := await end.left()) is not None]
    if left:
        status = link_deletion_status(link, left, now=timestamp())
        await write_status(context.hub, WAN_LINK, found, status, previous=link.status.conditions)
        return _SOON
    await set_finalizer(context.hub, WAN_LINK, found, present=False)
    return _SOON
