"""From observations to conditions: tables."""

from typing import Any

import pytest

from pdd_operator.api.base import Condition
from pdd_operator.api.member_cluster import MemberClusterStatus
from pdd_operator.api.pdd_deployment import PDDDeployment, PDDDeploymentStatus
from pdd_operator.api.wan_link import WANLink
from pdd_operator.desired.sites import desired_pods
from pdd_operator.plan.nodes import Node
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding, conditions
from pdd_operator.status.deletion import deletion_status
from pdd_operator.status.deployment import SiteObservation, deployment_status, pending
from pdd_operator.status.member import MemberObservation, member_status
from pdd_operator.status.pods import mount_failures
from pdd_operator.status.telemetry import FrontTelemetry
from pdd_operator.status.transitions import transitions

from .example import deployment, link, member

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
LOST = Problem("Unreachable", "the API server does not answer", needs_help=False)


def _workload(component: str, replicas: int, ready: int, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {
            "name": f"assistant-{component}",
            "generation": 1,
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": ready,
            **status,
        },
    }


def _pod(component: str, number: int, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"assistant-{component}-{number}",
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", **status},
    }


def _site(wanted: PDDDeployment, cluster: str, **ready: int) -> SiteObservation:
    """A site whose roles have all their pods, or as many ready as given by role (with _ for -)."""
    roles = {name: count for (name, where), count in desired_pods(wanted).items() if where == cluster}
    return SiteObservation(
        cluster=cluster,
        workloads=[_workload(name, count, ready.get(name.replace("-", "_"), count)) for name, count in roles.items()],
        pods=[_pod(name, number) for name, count in roles.items() for number in range(count)],
    )


def _line(ready: str = "True") -> WANLink:
    found = link()
    found.status.conditions = [
        Condition(type="Ready", status=ready, reason="R", message="", observed_generation=1, last_transition_time=NOW)
    ]
    return found


def _telemetry(checked: int | None, *pairs: tuple[str, str, str]) -> FrontTelemetry:
    """A front router's document; pairs are (field, what P has, what MD has)."""
    mismatches = [
        {
            "field": field,
            "prefill": {"engine": "assistant-prefill-x", "value": here},
            "other": {"engine": "assistant-main-decode-y", "site": "site-b", "role": "main-decode", "value": there},
        }
        for field, here, there in pairs
    ]
    document: dict[str, Any] = {"version": 1, "links": []}
    if checked is not None:
        document["compatibility"] = {"checked": checked, "mismatches": mismatches}
    return FrontTelemetry.model_validate(document)


def _status(wanted: PDDDeployment, *sites: SiteObservation, **more: Any) -> PDDDeploymentStatus:
    given = sites or (_site(wanted, "site-a"), _site(wanted, "site-b"))
    more = {"line": _line(), "telemetry": [_telemetry(11)], **more}
    return deployment_status(wanted, sites=given, link=more.pop("line"), now=NOW, **more)


def _brief(status: Any) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions}


def test_all_well() -> None:
    status = _status(deployment())
    assert _brief(status) == {
        "Ready": ("True", "Serving"),
        "Reconciling": ("False", "UpToDate"),
        "Stalled": ("False", "NotStalled"),
        "Scheduled": ("True", "Scheduled"),
        "LinkReady": ("True", "R"),
        "KVCompatible": ("True", "SameModelAndFormat"),
    }
    assert status.observed_generation == 3
    assert status.endpoint == "http://assistant.llm.svc:8000/v1"
    assert status.summary is not None
    assert status.summary.main_decode == "6/6"


def test_first_status_knows_nothing() -> None:
    assert _brief(pending(deployment(), now=NOW)) == {
        "Ready": ("Unknown", "Pending"),
        "Reconciling": ("True", "Pending"),
        "Stalled": ("False", "Pending"),
    }


def test_a_role_short_of_pods() -> None:
    wanted = deployment()
    status = _status(wanted, _site(wanted, "site-a", relay_decode=0), _site(wanted, "site-b"))
    brief = _brief(status)
    assert brief["Ready"] == ("False", "RolesNotReady")
    assert brief["Reconciling"] == ("True", "RolesNotReady")
    assert status.conditions[0].message == "relay-decode on site-a 0/1"


def test_unschedulable_pods_speak_in_the_schedulers_words() -> None:
    wanted = deployment()
    site = _site(wanted, "site-b", main_decode=5)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient example.com/chip-b.",
    }
    pods = [*site.pods, _pod("main-decode", 9, phase="Pending", conditions=[condition])]
    status = _status(wanted, _site(wanted, "site-a"), SiteObservation("site-b", True, site.workloads, pods))
    assert _brief(status)["Scheduled"] == ("False", "Unschedulable")
    scheduled = status.conditions[3].message
    assert scheduled.startswith("main-decode on site-b: pod assistant-main-decode-9: 0/1 nodes are available")
    assert "Insufficient example.com/chip-b" in status.conditions[0].message


def test_pods_that_do_not_start_say_why() -> None:
    wanted = deployment()
    site = _site(wanted, "site-a", renderer=0)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pods = [
        *(pod for pod in site.pods if "renderer" not in pod["metadata"]["name"]),
        _pod("renderer", 0, containerStatuses=[{"state": waiting}]),
    ]
    observed = SiteObservation("site-a", True, site.workloads, pods)
    message = _status(wanted, observed, _site(wanted, "site-b")).conditions[0].message
    assert message == "renderer on site-a 0/1; renderer: pod assistant-renderer-0: ImagePullBackOff: no such image"


def test_pods_that_crash_say_how() -> None:
    wanted = deployment()
    crash = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    site = _site(wanted, "site-a", renderer=0)
    pods = [*site.pods, _pod("renderer", 0, containerStatuses=[crash])]
    observed = SiteObservation("site-a", True, site.workloads, pods)
    message = _status(wanted, observed, _site(wanted, "site-b")).conditions[0].message
    assert message.endswith("pod assistant-renderer-0: CrashLoopBackOff: exit code 137 (OOMKilled)")


def test_refused_pods() -> None:
    wanted = deployment()
    refusal = {"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}
    site = _site(wanted, "site-b")
    workloads = [
        _workload("main-decode", 6, 0, conditions=[refusal])
        if each["metadata"]["name"] == "assistant-main-decode"
        else each
        for each in site.workloads
    ]
    pods = [pod for pod in site.pods if "main-decode" not in pod["metadata"]["name"]]
    status = _status(wanted, _site(wanted, "site-a"), SiteObservation("site-b", True, workloads, pods))
    assert _brief(status)["Scheduled"] == ("False", "PodsRefused")
    assert "violates PodSecurity" in status.conditions[0].message


def test_a_roll_out_past_its_deadline_stalls() -> None:
    wanted = deployment()
    site = _site(wanted, "site-a", prefill=0)
    late = {"type": "Progressing", "status": "False", "message": "has timed out progressing."}
    workloads = [
        _workload("prefill", 4, 0, conditions=[late]) if "prefill" in each["metadata"]["name"] else each
        for each in site.workloads
    ]
    status = _status(wanted, SiteObservation("site-a", True, workloads, site.pods), _site(wanted, "site-b"))
    assert _brief(status)["Stalled"] == ("True", "ProgressDeadlineExceeded")
    assert _brief(status)["Reconciling"][0] == "False"


def test_a_lost_member_is_unknown_and_keeps_its_last_figures() -> None:
    wanted = deployment()
    wanted.status = _status(wanted)
    status = _status(wanted, _site(wanted, "site-a"), SiteObservation("site-b", reachable=False))
    brief = _brief(status)
    assert brief["Ready"] == ("Unknown", "MemberUnreachable")
    assert brief["Reconciling"] == ("Unknown", "MemberUnreachable")
    assert brief["Scheduled"] == ("Unknown", "MemberUnreachable")
    assert brief["Stalled"] == ("False", "NotStalled")
    assert status.roles == wanted.status.roles


def test_what_needs_help_outranks_a_lost_member() -> None:
    wanted = deployment()
    sites = SiteObservation("site-a", reachable=False), SiteObservation("site-b", reachable=False)
    problem = Problem("WANLinkNotFound", "no WANLink joins site-a and site-b; create one")
    status = _status(wanted, *sites, line=None, problems=[problem])
    brief = _brief(status)
    assert brief["Ready"] == ("False", "WANLinkNotFound")
    assert brief["Stalled"] == ("True", "WANLinkNotFound")
    assert brief["LinkReady"] == ("Unknown", "NoLink")


@pytest.mark.parametrize(("line", "ready"), [("True", "True"), ("Unknown", "True"), ("False", "False")])
def test_only_a_line_known_to_be_down_takes_ready_away(line: str, ready: str) -> None:
    brief = _brief(_status(deployment(), line=_line(line)))
    assert brief["Ready"][0] == ready
    assert brief["LinkReady"][0] == line


def _pair(field: str, here: str, there: str) -> str:
    return (
        f"{field}: assistant-prefill-x (prefill on site-a) has {here}, "
        f"assistant-main-decode-y (main-decode on site-b) has {there}"
    )


WEIGHTS = ("weights_fingerprint", "a", "b")
DTYPE = ("dtype", "float32", "bfloat16")


@pytest.mark.parametrize(
    ("telemetry", "status", "reason", "message"),
    [
        ([_telemetry(3)], "True", "SameModelAndFormat", "3 engines were compared"),
        ([_telemetry(3), _telemetry(11)], "True", "SameModelAndFormat", "11 engines were compared"),
        ([_telemetry(0), _telemetry(None), _telemetry(2)], "True", "SameModelAndFormat", "2 engines were compared"),
        ([_telemetry(3, WEIGHTS)], "False", "Mismatch", _pair(*WEIGHTS)),
        ([_telemetry(3), _telemetry(2, WEIGHTS)], "False", "Mismatch", _pair(*WEIGHTS)),
        (
            [_telemetry(3, WEIGHTS), _telemetry(3, WEIGHTS, DTYPE)],
            "False",
            "Mismatch",
            f"{_pair(*DTYPE)}; {_pair(*WEIGHTS)}; run the same image everywhere",
        ),
        ([_telemetry(0)], "Unknown", "NoTelemetry", "the front router has compared no engines yet"),
        ([_telemetry(None)], "Unknown", "NoTelemetry", "use a newer router image"),
        (LOST, "Unknown", "NoTelemetry", "the API server does not answer"),
    ],
)
def test_what_front_routers_compared(telemetry: Any, status: str, reason: str, message: str) -> None:
    found = _status(deployment(), telemetry=telemetry)
    assert _brief(found)["KVCompatible"] == (status, reason)
    assert message in found.conditions[-1].message
    assert _brief(found)["Ready"] == (("False", "KVNotCompatible") if status == "False" else ("True", "Serving"))
    if status == "False":
        assert message in found.conditions[0].message


def test_many_mismatches_leave_room_for_what_to_do_and_read_the_same_in_any_order() -> None:
    pairs = [(f"field_{number:02}", "a" * 100, "b" * 64) for number in range(24)]
    message = _status(deployment(), telemetry=[_telemetry(9, *pairs)]).conditions[-1].message
    assert message.startswith(_pair("field_00", "a" * 64 + "...", "b" * 64))
    assert "; and 22 more; run the same image everywhere" in message
    assert message.endswith("(spec.model.source)")
    other_way = [_telemetry(9, *pairs[12:]), _telemetry(9, *reversed(pairs))]
    assert _status(deployment(), telemetry=other_way).conditions[-1].message == message


def test_engines_that_differ_are_an_event() -> None:
    same, other = (_status(deployment(), telemetry=[_telemetry(3, *pairs)]).conditions for pairs in ((), (DTYPE,)))
    events = [(each.type, each.reason) for each in transitions(same, other)]
    assert events == [("Warning", "KVNotCompatible"), ("Warning", "Mismatch")]
    assert [(each.type, each.reason) for each in transitions(other, same)] == [
        ("Normal", "Serving"),
        ("Normal", "SameModelAndFormat"),
    ]


def _waiting(component: str, number: int) -> dict[str, Any]:
    pod = _pod(
        component,
        number,
        phase="Pending",
        conditions=[
            {"type": "PodScheduled", "status": "True"},
            {"type": "PodReadyToStartContainers", "status": "False"},
        ],
    )
    pod["metadata"]["uid"] = f"uid-{number}"
    return pod


def _failed_mount(uid: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"kind": "Pod", "uid": uid}, "reason": "FailedMount", "message": message}


def _while_waiting(wanted: PDDDeployment, component: str, message: str, *, ready: int) -> PDDDeploymentStatus:
    """A pod of the component waits for a volume; the kubelet said `message` about it, and other things of others."""
    site = _site(wanted, "site-a", **{component.replace("-", "_"): ready})
    pods = [*site.pods, _waiting(component, 9)]
    events = [_failed_mount("gone", "of a pod that is gone"), _failed_mount("uid-9", message)]
    observed = SiteObservation("site-a", True, site.workloads, pods, mount_failures=mount_failures(pods, events))
    return _status(wanted, observed, _site(wanted, "site-b"))


NO_KEYS = 'MountVolume.SetUp failed for volume "api-keys" : secret "keys" not found'
WITH_KEYS: dict[str, Any] = {"endpoint": {"apiKeys": {"secretRef": {"name": "keys"}}}}


@pytest.mark.parametrize("ready", [0, 1], ids=["at first", "while the old front router serves on"])
def test_a_missing_secret_with_api_keys_needs_help(ready: int) -> None:
    status = _while_waiting(deployment(**WITH_KEYS), "front-router", NO_KEYS, ready=ready)
    brief = _brief(status)
    assert brief["Ready"] == ("False", "SecretNotFound")
    assert brief["Stalled"] == ("True", "SecretNotFound")
    assert status.conditions[0].message == (
        "spec.endpoint.apiKeys.secretRef: there is no Secret llm/keys on site-a, and no front router starts without "
        "it; create it there, with one key a value: kubectl create secret generic keys -n llm --from-literal=NAME=KEY; "
        "the kubelet looks again within two minutes"
    )


def test_a_volume_that_cannot_be_mounted_for_another_reason_is_told_in_the_kubelets_words() -> None:
    slow = 'MountVolume.SetUp failed for volume "api-keys" : failed to sync secret cache'
    status = _while_waiting(deployment(**WITH_KEYS), "front-router", slow, ready=0)
    assert _brief(status)["Stalled"] == ("False", "NotStalled")
    assert status.conditions[0].message == (
        f"front-router on site-a 0/1; front-router: pod assistant-front-router-9: {slow}"
    )


def test_a_pod_that_has_its_volumes_by_now_is_not_in_trouble() -> None:
    pod = _waiting("front-router", 9)
    pod["status"]["conditions"][1]["status"] = "True"
    assert mount_failures([pod], [_failed_mount("uid-9", NO_KEYS)]) == {}


def test_suspended() -> None:
    brief = _brief(_status(deployment(suspend=True)))
    assert brief["Ready"] == ("False", "Suspended")
    assert brief["Reconciling"] == ("False", "UpToDate")


def test_an_old_template_is_still_rolling() -> None:
    wanted = deployment()
    site = _site(wanted, "site-b")
    workloads = [
        _workload("main-decode", 6, 6, updatedReplicas=5)
        if each["metadata"]["name"] == "assistant-main-decode"
        else each
        for each in site.workloads
    ]
    status = _status(wanted, _site(wanted, "site-a"), SiteObservation("site-b", True, workloads, site.pods))
    assert _brief(status)["Ready"] == ("True", "Serving")
    assert _brief(status)["Reconciling"] == ("True", "RollingOut")


def test_deletion_says_what_it_waits_for() -> None:
    wanted = deployment()
    wanted.status = _status(wanted)
    waits = Problem("MemberUnreachable", "waiting for site-b", needs_help=False)
    status = deletion_status(wanted, [waits], now=LATER)
    assert _brief(status) == {
        "Ready": ("False", "Deleting"),
        "Reconciling": ("True", "MemberUnreachable"),
        "Stalled": ("False", "MemberUnreachable"),
    }
    gone = deletion_status(wanted, [waits, Problem("MemberClusterNotFound", "create it again")], now=LATER)
    assert _brief(gone)["Stalled"] == ("True", "MemberClusterNotFound")


def test_transition_times_stay_while_the_status_does() -> None:
    first = conditions([Finding("Ready", "False", "A")], previous=[], generation=1, now=NOW)
    same = conditions([Finding("Ready", "False", "B", "b")], previous=first, generation=2, now=LATER)
    other = conditions([Finding("Ready", "True", "C")], previous=same, generation=2, now=LATER)
    assert [each[0].last_transition_time for each in (first, same, other)] == [NOW, NOW, LATER]
    assert same[0].observed_generation == 2


def test_events_are_for_transitions_only() -> None:
    wanted = deployment()
    start = pending(wanted, now=NOW).conditions
    short = _status(wanted, _site(wanted, "site-a", prefill=0), _site(wanted, "site-b")).conditions
    well = _status(wanted).conditions
    assert transitions([], start) == []
    assert transitions(start, short) == []
    assert transitions(short, short) == []
    assert [(each.type, each.reason) for each in transitions(short, well)] == [("Normal", "Serving")]
    assert [(each.type, each.reason) for each in transitions(well, short)] == [("Warning", "RolesNotReady")]


def _node(name: str, pool: str, chips: str, *, ready: bool = True) -> Node:
    return Node(
        name=name,
        ready=ready,
        schedulable=True,
        internal_ip="",
        labels={"pdd.dev/pool": pool},
        allocatable={"example.com/chip-b": chips},
    )


def test_member_counts_chips_of_ready_nodes() -> None:
    held = {"resources": {"requests": {"example.com/chip-b": "2"}}}
    pods = [
        {"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "containers": [held]}, "status": {}},
        {"metadata": {"name": "b"}, "spec": {"containers": [held]}, "status": {"phase": "Pending"}},
        {
            "metadata": {"name": "c", "deletionTimestamp": NOW},
            "spec": {"nodeName": "n1", "containers": [held]},
            "status": {},
        },
    ]
    nodes = [_node("n1", "memory", "8"), _node("n2", "memory", "8", ready=False), _node("n3", "other", "8")]
    seen = MemberObservation(version="v1.34.4", nodes=nodes, pods=pods)
    status = member_status(member("site-b"), seen, now=NOW)
    (pool,) = status.node_pools
    assert (pool.nodes, pool.ready, pool.chips.allocatable, pool.chips.free) == (2, 1, 8, 6)
    assert status.chips == "memory 6/8"
    assert _brief(status) == {"Ready": ("True", "Answering")}


def test_lost_member_keeps_what_was_known_and_since_when() -> None:
    cluster = member("site-b")
    cluster.status = MemberClusterStatus(kubernetes_version="v1.34.4", chips="memory 6/8")
    cluster.status = member_status(cluster, LOST, now=NOW)
    assert _brief(cluster.status) == {"Ready": ("Unknown", "Unreachable")}
    again = member_status(cluster, LOST, now=LATER)
    assert again == cluster.status
    assert (again.kubernetes_version, again.chips, again.lost_since) == ("v1.34.4", "memory 6/8", NOW)
    back = member_status(cluster, MemberObservation(version="v1.34.4", nodes=[], pods=[]), now=LATER)
    assert back.lost_since is None
