"""MemberCluster: connect, ask for version, nodes and pods, write the status, wake who depends on it."""

import asyncio
import base64

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

_RESYNC = 60.0
_RETRY = 10.0


async def reconcile_member(context: Context, key: Key) -> float | None:
    """One visit."""
    found = await context.hub.get(MEMBER_CLUSTER, key.name)
    if found is None:
        await context.members.drop(key.name)
        _wake_dependents(context)
        return None
    cluster = MemberCluster.model_validate(found)
    member = context.members.enter(cluster)

    seen = await _observe(context, member)

    before = member.met, member.connected, member.nodes
    member.met, member.connected = True, isinstance(seen, MemberObservation)
    if isinstance(seen, MemberObservation):
        member.nodes = seen.nodes
    status = member_status(cluster, seen, now=timestamp())
    await write_status(context.hub, MEMBER_CLUSTER, found, status, previous=cluster.status.conditions)
    spec_changed = cluster.status.observed_generation != cluster.metadata.generation
    if spec_changed or before != (member.met, member.connected, member.nodes):
        _wake_dependents(context)
    return _RESYNC if member.connected else _RETRY


async def _observe(context: Context, member: Member) -> MemberObservation | Problem:
    """What the member says, or why it says nothing."""
    try:
        session = await _connect(context, member)
        namespaces = await _namespaces(context, member.name)
        version, uid, nodes, pods = await asyncio.gather(
            session.version(),
            _cluster_uid(session),
            session.list(NODE),
            asyncio.gather(*(_pods(session, namespace) for namespace in namespaces)),
        )
    except BadCredentialsError as error:
        return Problem("BadCredentials", f"the kubeconfig cannot be used: {error}")
    except UnreachableError as error:
        return Problem("Unreachable", f"the API server does not answer: {error}", needs_help=False)
    except ApiError as error:
        return _refused(error)
    member.cluster_uid = uid
    namesake = context.members.namesake(member, uid)
    if namesake is not None:
        return Problem(
            "SameCluster",
            f"MemberCluster {namesake} is this very cluster; delete one of the two: the operator would remove "
            "under each name what it makes under the other",
        )
    return MemberObservation(
        version=version,
        nodes=[node(each) for each in nodes],
        pods=[pod for some in pods for pod in some],
    )


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


async def _pods(session: Session, namespace: str) -> list[Object]:
    """Our pods in a namespace; none where the member grants nothing there, which its deployments report."""
    try:
        return list(await session.list(POD, namespace, selector=OURS))
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
