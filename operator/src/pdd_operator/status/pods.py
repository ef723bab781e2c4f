"""What stands in the way of pods: the scheduler's word, and the kubelet's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pdd_operator.desired.labels import COMPONENT_LABEL, Manifest

_STARTING = {"ContainerCreating", "PodInitializing"}


def living(pods: Iterable[Manifest]) -> list[Manifest]:
    """Pods that are neither finished nor on their way out."""
    return [
        pod
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
    ]


def component(pod: Manifest) -> str:
    """The role of a pod."""
    return str((pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL, ""))


def unschedulable(pods: Iterable[Manifest]) -> str | None:
    """The scheduler's message about the first pod (by name) that it found no node for."""
    for pod in _by_name(pods):
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                return f"pod {pod['metadata']['name']}: {condition.get('message', 'no node fits')}"
    return None


def waits_for_volumes(pod: Manifest) -> bool:
    """Whether the pod has a node and its containers cannot be started yet: its volumes are not mounted."""
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions") or []}
    return conditions.get("PodScheduled") == "True" and conditions.get("PodReadyToStartContainers") == "False"


def mount_failures(pods: Iterable[Manifest], events: Iterable[Manifest]) -> dict[str, list[str]]:
    """What the kubelet says of the volumes that it cannot mount, by the uid of the pod that waits for them."""
    waiting: dict[str, set[str]] = {pod["metadata"]["uid"]: set() for pod in pods if waits_for_volumes(pod)}
    for event in events:
        said = waiting.get(event["involvedObject"].get("uid", ""))
        if said is not None:
            said.add(str(event.get("message", "")))
    return {uid: sorted(messages) for uid, messages in waiting.items() if messages}


def trouble(pods: Iterable[Manifest], failures: Mapping[str, Sequence[str]]) -> str | None:
    """Why the first pod (by name) in trouble does not start, in the kubelet's words."""
    for pod in _by_name(pods):
        unmounted = failures.get(pod["metadata"].get("uid", ""))
        if unmounted:
            return f"pod {pod['metadata']['name']}: {unmounted[0]}"
        for container in pod.get("status", {}).get("containerStatuses") or []:
            waiting: dict[str, Any] = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason")
            if reason and reason not in _STARTING:
                detail = _last_exit(container) or waiting.get("message", "")
                return f"pod {pod['metadata']['name']}: {reason}: {detail}".rstrip(": ")
    return None


def _last_exit(container: Manifest) -> str | None:
    """How a container that crashes ended: it says more than the back-off, and does not change every minute."""
    last: dict[str, Any] = (container.get("lastState") or {}).get("terminated") or {}
    return f"exit code {last['exitCode']} ({last.get('reason', 'no reason given')})" if last else None


def _by_name(pods: Iterable[Manifest]) -> Iterator[Manifest]:
    return iter(sorted(pods, key=lambda pod: str(pod["metadata"]["name"])))
