"""Deletion of a PDDDeployment: nothing of it is left in any member before it goes.

A member that does not answer is waited for: its silence says nothing about what it still holds.
"""

import asyncio
from typing import Final

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.apply import orphan, remove
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import MEMBER_CLUSTER, OWNED, PDD_DEPLOYMENT
from pdd_operator.clusters.session import Object, Session
from pdd_operator.context import Context
from pdd_operator.desired.labels import owner
from pdd_operator.hub import FINALIZER, set_finalizer, timestamp, write_status
from pdd_operator.plan.problem import Problem
from pdd_operator.reconcile.visit import as_problem, namespace_is_gone, owned_objects
from pdd_operator.status.deletion import deletion_status

_AGAIN: Final = 5.0
_SOON: Final = 1.0


async def tear_down(context: Context, found: Object, deployment: PDDDeployment) -> float | None:
    """One visit to a PDDDeployment that is being deleted."""
    if FINALIZER not in deployment.metadata.finalizers:
        return None
    clusters = [deployment.spec.prefill.cluster, deployment.main_placement.cluster]
    for cluster in clusters:
        context.members.watch(cluster, deployment.metadata.namespace)
    outcomes = await asyncio.gather(*(_clear(context, deployment, cluster) for cluster in clusters))
    problems = [outcome for outcome in outcomes if outcome is not None]
    if problems and deployment.spec.deletion_policy == "Delete":
        status = deletion_status(deployment, problems, now=timestamp())
        await write_status(context.hub, PDD_DEPLOYMENT, found, status, previous=deployment.status.conditions)
        return _AGAIN
    await set_finalizer(context.hub, PDD_DEPLOYMENT, found, present=False)
    return _SOON


async def _clear(context: Context, deployment: PDDDeployment, cluster: str) -> Problem | None:
    """Remove or orphan everything in one member; None once nothing of ours is left there."""
    member = context.members.get(cluster)
    if member is None or member.session is None or not member.connected:
        return await _absent(context, cluster)
    namespace = deployment.metadata.namespace
    try:
        left = await _remaining(member.session, deployment)
    except UnreachableError:
        return _unreachable(cluster)
    except ApiError as error:
        if error.status == 403 and await namespace_is_gone(member.session, namespace):
            return None
        return as_problem(error, cluster, owner(deployment))
    if left == 0:
        return None
    return Problem("Deleting", f"waiting for objects to go on {cluster}: {left} left", needs_help=False)


async def _absent(context: Context, cluster: str) -> Problem:
    if await context.hub.get(MEMBER_CLUSTER, cluster) is not None:
        return _unreachable(cluster)
    return Problem(
        "MemberClusterNotFound",
        f"MemberCluster {cluster} is gone, so its objects cannot be removed; create it again, "
        "or set spec.deletionPolicy to Orphan to leave them there",
    )


def _unreachable(cluster: str) -> Problem:
    return Problem(
        "MemberUnreachable",
        f"waiting for {cluster}: it cannot be reached, and may still hold objects of this deployment",
        needs_help=False,
    )


async def _remaining(session: Session, deployment: PDDDeployment) -> int:
    """Have the objects deleted or orphaned; how many were still there."""
    objects, pods = await owned_objects(session, owner(deployment), OWNED)
    if deployment.spec.deletion_policy == "Orphan":
        await orphan(session, objects)
        return 0
    await remove(session, [each for each in objects if not each["metadata"].get("deletionTimestamp")])
    return len(objects) + len(pods)
