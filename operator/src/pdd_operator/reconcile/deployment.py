"""PDDDeployment: observe both sites, decide, apply, prune, write the status."""

import asyncio
from collections.abc import Sequence
from typing import Final

from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink
from pdd_operator.clusters.kinds import CONFIG_MAP, MEMBER_CLUSTER, PDD_DEPLOYMENT, SERVICE, WAN_LINK
from pdd_operator.clusters.session import Object
from pdd_operator.context import Context
from pdd_operator.desired.front_router import RemoteSite
from pdd_operator.desired.labels import FRONT_ROUTER, MAIN_ROUTER, object_name
from pdd_operator.desired.sites import front, main_site, prefill_site
from pdd_operator.hub import FINALIZER, set_finalizer, timestamp, write_status
from pdd_operator.loops import Key
from pdd_operator.plan.known_addresses import known_addresses
from pdd_operator.plan.nodes import addresses
from pdd_operator.plan.problem import Problem
from pdd_operator.plan.references import References, resolve
from pdd_operator.reconcile.site import Site
from pdd_operator.reconcile.teardown import tear_down
from pdd_operator.status.deployment import deployment_status, pending

_RESYNC: Final = 60.0
_RETRY: Final = 10.0
_SOON: Final = 2.0


async def reconcile_deployment(context: Context, key: Key) -> float | None:
    """One visit."""
    found = await context.hub.get(PDD_DEPLOYMENT, key.name, key.namespace)
    if found is None:
        context.telemetry.forget(key.namespace, key.name)
        await _forget_namespace(context, key.namespace)
        return None
    deployment = PDDDeployment.model_validate(found)
    if deployment.metadata.deletion_timestamp:
        return await tear_down(context, found, deployment)
    found, deployment = await _introduce(context, found, deployment)

    references = await _references(context, deployment)
    clusters = deployment.spec.prefill.cluster, deployment.main_placement.cluster
    prefill, main = sites = [Site(name, context.members.get(name), deployment) for name in clusters]
    for name in clusters:
        context.members.watch(name, deployment.metadata.namespace)
    await asyncio.gather(prefill.observe(), main.observe())
    if not isinstance(references, Problem):
        await _roll_forward(context, deployment, references, prefill, main)
        if not all(map(context.members.met, clusters)):
            return _SOON  # the operator has just started; a status now would only say so
    return await _report(context, found, deployment, references, sites)


async def _introduce(context: Context, found: Object, deployment: PDDDeployment) -> tuple[Object, PDDDeployment]:
    """The first visit: a finalizer before anything is made, and a status before anything takes time."""
    if FINALIZER not in deployment.metadata.finalizers:
        found = await set_finalizer(context.hub, PDD_DEPLOYMENT, found, present=True)
    if not deployment.status.conditions:
        status = pending(deployment, now=timestamp())
        found = await write_status(context.hub, PDD_DEPLOYMENT, found, status, previous=[]) or found
    return found, PDDDeployment.model_validate(found)


async def _references(context: Context, deployment: PDDDeployment) -> References | Problem:
    members, links = await asyncio.gather(context.hub.list(MEMBER_CLUSTER), context.hub.list(WAN_LINK))
    clusters = [MemberCluster.model_validate(each) for each in members]
    return resolve(
        deployment,
        members={cluster.metadata.name: cluster for cluster in clusters},
        links=[WANLink.model_validate(each) for each in links],
        default_images=context.settings.images,
    )


async def _roll_forward(
    context: Context, deployment: PDDDeployment, references: References, prefill: Site, main: Site
) -> None:
    """Both sites at once; then the front router, which is told where the main site's router answers."""
    images, pools = references.images, references.prefill_pools
    here = prefill_site(deployment, pools=pools, images=images)
    there = main_site(deployment, placement=deployment.main_placement, pools=references.main_pools, images=images)
    await asyncio.gather(prefill.apply(here), main.apply(there))

    remote = RemoteSite(
        name=main.cluster, link=references.link, addresses=_addresses(context, deployment, prefill, main)
    )
    head = front(deployment, pools=pools, images=images, sites=[remote])
    await prefill.apply(head)
    await asyncio.gather(prefill.prune([*here, *head]), main.prune(there))


def _addresses(context: Context, deployment: PDDDeployment, prefill: Site, main: Site) -> Sequence[str]:
    """The main router's addresses as of now, or the last known ones while its site cannot be asked."""
    service = main.objects.get((SERVICE.kind, object_name(deployment, MAIN_ROUTER)))
    member = context.members.get(main.cluster)
    if main.usable and service and member:
        current = addresses(member.nodes, service)
        if current:
            return current
    config_map = prefill.objects.get((CONFIG_MAP.kind, object_name(deployment, FRONT_ROUTER)))
    return known_addresses(config_map, main.cluster)


async def _report(
    context: Context,
    found: Object,
    deployment: PDDDeployment,
    references: References | Problem,
    sites: Sequence[Site],
) -> float:
    """Write the status; members count their chips again when it changed."""
    unresolved = isinstance(references, Problem)
    status = deployment_status(
        deployment,
        sites=[site.observation for site in sites],
        link=None if isinstance(references, Problem) else references.link,
        telemetry=await context.telemetry.recent(deployment),
        problems=[references] if isinstance(references, Problem) else [],
        now=timestamp(),
    )
    previous = deployment.status.conditions
    if await write_status(context.hub, PDD_DEPLOYMENT, found, status, previous=previous):
        for site in sites:
            context.members.count_again(site.cluster)
            context.loops.wake(MEMBER_CLUSTER.kind, name=site.cluster)
    settled = not unresolved and all(site.usable and not site.starting for site in sites)
    return _RESYNC if settled else _RETRY


async def _forget_namespace(context: Context, namespace: str) -> None:
    """Stop watching a namespace of the members once no PDDDeployment is left in it."""
    if not await context.hub.list(PDD_DEPLOYMENT, namespace):
        context.members.unwatch(namespace)
