"""MemberCluster: connect, probe, count nodes and chips, write the status, wake who depends on it."""

import asyncio
import base64
from collections.abc import Iterable, Sequence
from typing import Final

from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.clusters.credentials import BadCredentialsError
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import MEMBER_CLUSTER, NAMESPACE, NODE, PDD_DEPLOYMENT, POD, SECRET
from pdd_operator.clusters.registry import OURS, Member
from pdd_operator.clusters.session import Object, Session
from pdd_operator.context import Context
from pdd_operator.hub import timestamp, write_status
from pdd_operator.loops import Key
from pdd_operator.plan.nodes import node
from pdd_operator.plan.problem import Problem
from pdd_operator.status.member import MemberObservation, member_status

_PROBE: Final = 10.0
_COUNT: Final = 60.0
"""Listing all nodes of a large cluster is no probe: they are counted on events, and this often."""


async def reconcile_member(context: Context, key: Key) -> float | None:
    """One visit."""
    found = await context.hub.get(MEMBER_CLUSTER, key.name)
    if found is None:
        await context.members.drop(key.name)
        _wake_dependents(context)
        return None
    cluster = MemberCluster.model_validate(found)
    member = context.members.enter(cluster)
    spec_changed = cluster.status.observed_generation != cluster.metadata.generation
    if spec_changed:
        member.counted_at = None
    before = member.met, member.connected, member.nodes

    seen = await _observe(context, member)

    member.met, member.connected = True, not isinstance(seen, Problem)
    if seen is not None:
        status = member_status(cluster, seen, now=timestamp())
        await write_status(context.hub, MEMBER_CLUSTER, found, status, previous=cluster.status.conditions)
    if spec_changed or before != (member.met, member.connected, member.nodes):
        _wake_dependents(context)
    return _PROBE


async def _observe(context: Context, member: Member) -> MemberObservation | Problem | None:
    """What the member says, or why it says nothing; None when it answers and its count is still good."""
    try:
        session = await _connect(context, member)
        version = await session.version()
        now = asyncio.get_running_loop().time()
        if member.connected and member.counted_at is not None and now - member.counted_at < _COUNT:
            return None
        member.counted_at = now
        return await _count(context, member, session, version)
    except BadCredentialsError as error:
        return Problem("BadCredentials", f"the kubeconfig cannot be used: {error}")
    except UnreachableError as error:
        return Problem("Unreachable", f"the API server does not answer: {error}", needs_help=False)
    except ApiError as error:
        return _refused(error)


async def _count(context: Context, member: Member, session: Session, version: str) -> MemberObservation | Problem:
    uid, nodes, pods = await asyncio.gather(
        _cluster_uid(session),
        session.list(NODE),
        _pods(session, await _namespaces(context, member.name)),
    )
    member.cluster_uid, member.nodes = uid, [node(each) for each in nodes]
    namesake = context.members.namesake(member, uid)
    if namesake is not None:
        return Problem(
            "SameCluster",
            f"MemberCluster {namesake} is this very cluster; delete one of the two: the operator would remove "
            "under each name what it makes under the other",
        )
    return MemberObservation(version=version, nodes=member.nodes, pods=pods)


async def _connect(context: Context, member: Member) -> Session:
    reference = member.cluster.spec.kubeconfig_secret_ref
    if reference is None:
        return await context.members.connect(member, None)
    where = f"Secret {reference.namespace}/{reference.name}"
    try:
        secret = await context.hub.get(SECRET, reference.name, reference.namespace)
    except ApiError as error:
        raise BadCredentialsError(f"the operator may not read {where} ({error.status})") from None
    if secret is None:
        raise BadCredentialsError(f"{where} does not exist")
    encoded = (secret.get("data") or {}).get(reference.key)
    if not encoded:
        raise BadCredentialsError(f"{where} has no key {reference.key}")
    try:
        kubeconfig = base64.b64decode(encoded).decode()
    except ValueError:
        raise BadCredentialsError(f"{where}: key {reference.key} is not text") from None
    return await context.members.connect(member, kubeconfig)


async def _cluster_uid(session: Session) -> str:
    """What tells clusters apart, whatever their addresses and credentials: the uid of kube-system."""
    found = await session.get(NAMESPACE, "kube-system")
    return str(found["metadata"]["uid"]) if found else ""


async def _namespaces(context: Context, cluster: str) -> list[str]:
    """Namespaces of the PDDDeployments that use the cluster."""
    found = await context.hub.list(PDD_DEPLOYMENT)
    deployments = [PDDDeployment.model_validate(each) for each in found]
    return sorted(
        {
            each.metadata.namespace
            for each in deployments
            if cluster in {each.spec.prefill.cluster, each.main_placement.cluster}
        }
    )


async def _pods(session: Session, namespaces: Iterable[str]) -> list[Object]:
    """Our pods in the namespaces."""
    found = await asyncio.gather(*(_pods_in(session, namespace) for namespace in namespaces))
    return [pod for pods in found for pod in pods]


async def _pods_in(session: Session, namespace: str) -> Sequence[Object]:
    """None where the member grants nothing there, which the PDDDeployments of the namespace report."""
    try:
        return await session.list(POD, namespace, selector=OURS)
    except ApiError as error:
        if error.status == 403:
            return []
        raise


def _refused(error: ApiError) -> Problem:
    if error.status == 401:
        return Problem("Unauthorized", "the API server does not accept the credentials; renew the Secret")
    if error.status == 403:
        return Problem("Forbidden", f"{error.message}; install or upgrade the chart pdd-member there")
    return Problem("Unhealthy", f"the API server answers {error.status}: {error.message}", needs_help=False)


def _wake_dependents(context: Context) -> None:
    context.loops.wake(PDD_DEPLOYMENT.kind)
