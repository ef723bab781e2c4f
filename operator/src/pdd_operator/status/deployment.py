"""The status of a PDDDeployment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pdd_operator.api.pdd_deployment import PDDDeployment, PDDDeploymentStatus, RoleStatus, Summary
from pdd_operator.api.wan_link import WANLink
from pdd_operator.desired.front_router import endpoint
from pdd_operator.desired.labels import (
    COMPONENT_LABEL,
    FRONT_ROUTER,
    MAIN_DECODE,
    PREFILL,
    RELAY_DECODE,
    Manifest,
)
from pdd_operator.desired.sites import desired_pods
from pdd_operator.plan.problem import Problem
from pdd_operator.status.compatibility import kv_compatible
from pdd_operator.status.conditions import PENDING, Finding, conditions, find, truth
from pdd_operator.status.pods import component, living, trouble, unschedulable
from pdd_operator.status.telemetry import FrontTelemetry
from pdd_operator.status.workloads import failed_creation, out_of_time, ready_pods, rolled_out


@dataclass(frozen=True)
class SiteObservation:
    """What was seen of the deployment in one member cluster."""

    cluster: str
    reachable: bool = True
    workloads: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    problems: Sequence[Problem] = ()
    mount_failures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the kubelet says of the volumes that pods wait for, by the pod's uid."""


@dataclass(frozen=True)
class _View:
    """The deployment with its observations, by role and cluster."""

    deployment: PDDDeployment
    sites: Mapping[str, SiteObservation]
    problems: Sequence[Problem]
    roles: Sequence[RoleStatus]
    workloads: Mapping[tuple[str, str], Manifest]

    @property
    def lost(self) -> list[str]:
        return [site.cluster for site in self.sites.values() if not site.reachable]

    @property
    def short(self) -> list[RoleStatus]:
        return [role for role in self.roles if role.ready != role.desired]

    def pods(self, role: RoleStatus) -> list[Manifest]:
        site = self.sites.get(role.cluster)
        return [pod for pod in living(site.pods if site else ()) if component(pod) == role.name]

    def trouble(self, role: RoleStatus) -> str | None:
        site = self.sites.get(role.cluster)
        return trouble(self.pods(role), site.mount_failures if site else {})

    def workload(self, role: RoleStatus) -> Manifest | None:
        return self.workloads.get((role.name, role.cluster))


def pending(deployment: PDDDeployment, *, now: str) -> PDDDeploymentStatus:
    """The status of the first visit, before anything is known."""
    message = "the operator has seen this object and has not finished its first visit"
    return PDDDeploymentStatus(
        observed_generation=deployment.metadata.generation,
        conditions=conditions(
            [
                Finding("Ready", "Unknown", PENDING, message),
                Finding("Reconciling", "True", PENDING, message),
                Finding("Stalled", "False", PENDING),
            ],
            previous=[],
            generation=deployment.metadata.generation,
            now=now,
        ),
    )


def deployment_status(
    deployment: PDDDeployment,
    *,
    sites: Iterable[SiteObservation],
    link: WANLink | None,
    telemetry: Sequence[FrontTelemetry] | Problem,
    problems: Sequence[Problem] = (),
    now: str,
) -> PDDDeploymentStatus:
    """The next status; `problems` are those that no single site has."""
    by_cluster = {site.cluster: site for site in sites}
    workloads = {
        (found["metadata"]["labels"][COMPONENT_LABEL], site.cluster): found
        for site in by_cluster.values()
        for found in site.workloads
    }
    view = _View(
        deployment=deployment,
        sites=by_cluster,
        problems=[
            *problems,
            *(problem for site in by_cluster.values() for problem in site.problems),
            *_missing_secrets(deployment, by_cluster.get(deployment.spec.prefill.cluster)),
        ],
        roles=_roles(deployment, by_cluster, workloads),
        workloads=workloads,
    )
    link_ready = _link_ready(link)
    compatible = kv_compatible(telemetry, prefill_site=deployment.spec.prefill.cluster)
    stalled = _stalled(view)
    ready = _ready(view, link_ready, compatible)
    generation = deployment.metadata.generation
    return PDDDeploymentStatus(
        observed_generation=generation,
        conditions=conditions(
            [ready, _reconciling(view, ready, stalled), stalled, _scheduled(view), link_ready, compatible],
            previous=deployment.status.conditions,
            generation=generation,
            now=now,
        ),
        endpoint=endpoint(deployment),
        roles=list(view.roles),
        summary=_summary(view.roles),
    )


def _missing_secrets(deployment: PDDDeployment, site: SiteObservation | None) -> list[Problem]:
    """The Secret with the API keys, where the kubelet of a front router looks for it in vain.

    The operator may not read Secrets in members, so the kubelet's word is all there is. A front router of before may
    serve on, which is no reason to be silent: it has not got the keys that it is to ask for.
    """
    api_keys = deployment.spec.endpoint.api_keys
    if api_keys is None or site is None:
        return []
    name, namespace = api_keys.secret_ref.name, deployment.metadata.namespace
    told = f'secret "{name}" not found'
    waiting = [pod["metadata"].get("uid", "") for pod in living(site.pods) if component(pod) == FRONT_ROUTER]
    if not any(told in message for uid in waiting for message in site.mount_failures.get(uid, ())):
        return []
    return [
        Problem(
            "SecretNotFound",
            f"spec.endpoint.apiKeys.secretRef: there is no Secret {namespace}/{name} on {site.cluster}, and no front "
            "router starts without it; create it there, with one key a value: kubectl create secret generic "
            f"{name} -n {namespace} --from-literal=NAME=KEY; the kubelet looks again within two minutes",
        )
    ]


def _roles(
    deployment: PDDDeployment,
    sites: Mapping[str, SiteObservation],
    workloads: Mapping[tuple[str, str], Manifest],
) -> list[RoleStatus]:
    before = {(role.name, role.cluster): role.ready for role in deployment.status.roles}
    roles = []
    for (name, cluster), desired in desired_pods(deployment).items():
        seen = cluster in sites and sites[cluster].reachable
        ready = ready_pods(workloads.get((name, cluster))) if seen else before.get((name, cluster), 0)
        roles.append(RoleStatus(name=name, cluster=cluster, desired=desired, ready=ready))
    return roles


def _summary(roles: Iterable[RoleStatus]) -> Summary:
    def of(name: str) -> str:
        chosen = [role for role in roles if role.name == name]
        return f"{sum(role.ready for role in chosen)}/{sum(role.desired for role in chosen)}"

    roles = list(roles)
    return Summary(prefill=of(PREFILL), relay_decode=of(RELAY_DECODE), main_decode=of(MAIN_DECODE))


def _link_ready(link: WANLink | None) -> Finding:
    if link is None:
        return Finding("LinkReady", "Unknown", "NoLink", "no one WANLink joins the two clusters")
    ready = find(link.status.conditions, "Ready")
    if ready is None:
        return Finding("LinkReady", "Unknown", PENDING, f"WANLink {link.metadata.name} has no status yet")
    return Finding(
        "LinkReady",
        ready.status,
        ready.reason,
        f"WANLink {link.metadata.name}: {ready.message or ready.reason}",
    )


def _ready(view: _View, link_ready: Finding, compatible: Finding) -> Finding:
    blocking = [problem for problem in view.problems if problem.needs_help or not view.lost]
    if blocking:
        return Finding("Ready", "False", blocking[0].reason, blocking[0].message)
    if view.lost:
        return Finding(
            "Ready",
            "Unknown",
            "MemberUnreachable",
            f"{', '.join(view.lost)} cannot be reached; what runs there is left alone; "
            "see the MemberCluster's conditions",
        )
    if view.deployment.spec.suspend:
        return Finding("Ready", "False", "Suspended", "spec.suspend is true; set it to false to serve")
    if view.short:
        return Finding("Ready", "False", "RolesNotReady", _shortfall(view))
    for reason, finding in (("KVNotCompatible", compatible), ("LinkNotReady", link_ready)):
        if finding.status == "False":
            return Finding("Ready", "False", reason, finding.message)
    return Finding("Ready", "True", "Serving", "every role has its pods")


def _shortfall(view: _View) -> str:
    """The roles that lack pods, and what stands in the way of the first one for which that is known."""
    roles = ", ".join(f"{role.name} on {role.cluster} {role.ready}/{role.desired}" for role in view.short)
    for role in view.short:
        pods = view.pods(role)
        cause = failed_creation(view.workload(role)) or unschedulable(pods) or view.trouble(role)
        if cause:
            return f"{roles}; {role.name}: {cause}"
    return roles


def _stalled(view: _View) -> Finding:
    for problem in view.problems:
        if problem.needs_help:
            return Finding("Stalled", "True", problem.reason, problem.message)
    for role in view.roles:
        message = out_of_time(view.workload(role))
        if message is not None:
            return Finding(
                "Stalled",
                "True",
                "ProgressDeadlineExceeded",
                f"{role.name} on {role.cluster}: {message} {_shortfall(view)}",
            )
    return Finding("Stalled", "False", "NotStalled")


def _reconciling(view: _View, ready: Finding, stalled: Finding) -> Finding:
    if stalled.status == "True":
        return Finding("Reconciling", "False", "Stalled", "it waits for help; see Stalled")
    if view.lost:
        return Finding("Reconciling", "Unknown", ready.reason, ready.message)
    rolling = [role for role in view.roles if not rolled_out(view.workload(role))]
    waiting = bool(view.problems or view.short or rolling)
    if not waiting:
        return Finding("Reconciling", "False", "UpToDate")
    if rolling and not view.short and not view.problems:
        names = ", ".join(f"{role.name} on {role.cluster}" for role in rolling)
        return Finding("Reconciling", "True", "RollingOut", f"rolling out {names}")
    return Finding("Reconciling", truth(waiting), ready.reason, ready.message)


def _scheduled(view: _View) -> Finding:
    if view.lost:
        return Finding("Scheduled", "Unknown", "MemberUnreachable", f"{', '.join(view.lost)} cannot be reached")
    for role in view.roles:
        message = unschedulable(view.pods(role))
        if message is not None:
            return Finding("Scheduled", "False", "Unschedulable", f"{role.name} on {role.cluster}: {message}")
    for role in view.roles:
        have = len(view.pods(role))
        if have < role.desired:
            refusal = failed_creation(view.workload(role))
            text = f"{role.name} on {role.cluster}: {have} of {role.desired} pods exist"
            if refusal:
                return Finding("Scheduled", "False", "PodsRefused", f"{text}: {refusal}")
            return Finding("Scheduled", "Unknown", "PodsMissing", text)
    return Finding("Scheduled", "True", "Scheduled", "every pod has a node")
