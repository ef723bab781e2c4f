"""A Deployment's own report."""

from pdd_operator.desired.labels import Manifest


def ready_pods(workload: Manifest | None) -> int:
    """Pods that are ready; none where the Deployment is not there."""
    return int(((workload or {}).get("status") or {}).get("readyReplicas") or 0)


def rolled_out(workload: Manifest | None) -> bool:
    """Whether every pod is of the current template and count, whatever its readiness."""
    if workload is None:
        return False
    status, wanted = workload.get("status") or {}, workload["spec"]["replicas"]
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
    )


def failed_creation(workload: Manifest | None) -> str | None:
    """Why no pods can be created, such as a quota or Pod Security."""
    return _message(workload, "ReplicaFailure", "True")


def out_of_time(workload: Manifest | None) -> str | None:
    """The message of a roll-out that exceeded its deadline."""
    return _message(workload, "Progressing", "False")


def _message(workload: Manifest | None, kind: str, status: str) -> str | None:
    for condition in ((workload or {}).get("status") or {}).get("conditions") or []:
        if condition["type"] == kind and condition["status"] == status:
            return str(condition.get("message", ""))
    return None
