"""Deployments on the clusters: applied, waited for with progress, reached, taken away."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.environment import Sites
from pdd_e2e.kube import Cluster, condition, wait_for

KIND = "pdddeployment"
# Three engines start at once on two cores; a user's machine is faster.
READY_SECONDS = 900


def state(found: dict[str, Any]) -> str:
    """One line: `prefill 1/1, relay-decode 0/1, ...: why it is not ready`."""
    ready = condition(found, "Ready")
    roles = found.get("status", {}).get("roles", [])
    counts = ", ".join(f"{role['name']} {role['ready']}/{role['desired']}" for role in roles)
    return counts if ready["status"] == "True" else f"{counts or 'no pods yet'}: {ready['message']}"


def wait_ready(hub: Cluster, name: str, progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The PDDDeployment, Ready and rolled out. `progress` is told each new state. Raises WaitedTooLongError."""
    last = ""

    def look() -> dict[str, Any] | None:
        nonlocal last
        found = hub.get(KIND, name, NAMESPACE)
        if (now := state(found)) != last:
            progress(last := now)
        current = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        settled = condition(found, "Ready")["status"] == "True" and condition(found, "Reconciling")["status"] == "False"
        return found if current and settled else None

    return wait_for(f"PDDDeployment {name} to be Ready", look, seconds=READY_SECONDS, otherwise=lambda: last)


@contextmanager
def endpoint(sites: Sites, name: str) -> Iterator[str]:
    """The deployment's OpenAI endpoint on loopback, without `/v1`: by way of a pod that is ready and stays."""

    def ready_pod() -> str | None:
        for pod in pods(sites.a, name, "front-router"):
            if condition(pod, "Ready")["status"] == "True" and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        return None

    pod = wait_for(f"a ready front router of {name}", ready_pod, seconds=120)
    with sites.a.port_forward(NAMESPACE, f"pod/{pod}", 8000) as url:
        yield url


def pods(cluster: Cluster, name: str, component: str) -> list[dict[str, Any]]:
    labels = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={component}"
    return cluster.list("pods", "-n", NAMESPACE, "-l", labels)


def objects(cluster: Cluster, uid: str) -> list[str]:
    """`Kind/name` of everything in a member that belongs to the deployment with this uid."""
    kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,pods,endpointslices"
    found = cluster.list(kinds, "-n", NAMESPACE, "-l", f"pdd.dev/deployment-uid={uid}")
    return [f"{item['kind']}/{item['metadata']['name']}" for item in found]


def wait_gone(cluster: Cluster, uid: str) -> None:
    """Until a member holds nothing of a deployment. Raises WaitedTooLongError with what is left."""
    wait_for(
        f"{cluster.name} to hold nothing of the deleted deployment",
        lambda: not objects(cluster, uid),
        seconds=150,
        otherwise=lambda: str(objects(cluster, uid)),
    )
