"""What every pod has: Pod Security `restricted`, scratch space, and a Deployment around it."""

from typing import Any

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.desired.labels import Manifest, labels, metadata, object_name, selector

POD_SECURITY: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

# A pod that is going is first taken out of the EndpointSlices, and only told to end once everyone has seen that: nobody
# then connects to a socket that is closed.
_LEAVING_SECONDS = 5
LIFECYCLE: Manifest = {"preStop": {"sleep": {"seconds": _LEAVING_SECONDS}}}
# Longer than that and the 60 s in which engines (pdd_engine) and routers (pdd_router) end their work after SIGTERM.
GRACE_SECONDS = _LEAVING_SECONDS + 60 + 10


def container_port(name: str, port: int) -> Manifest:
    """A port with its protocol spelled out: server-side apply keys ports by both."""
    return {"name": name, "containerPort": port, "protocol": "TCP"}


def service_port(name: str, port: int) -> Manifest:
    """A Service's port onto the container port of the same name."""
    return {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}


def http_probe(path: str, **timing: int) -> Manifest:
    """A probe of the container's http port."""
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5, **timing}


def deployment_of(
    deployment: PDDDeployment,
    component: str,
    *,
    replicas: int,
    surge: int,
    unavailable: int,
    progress_deadline: int,
    pod: Manifest,
) -> Manifest:
    """The Deployment of a component; scaled to zero while the PDDDeployment is suspended."""
    spec: dict[str, Any] = {
        "replicas": 0 if deployment.spec.suspend else replicas,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": progress_deadline,
        "selector": {"matchLabels": selector(deployment, component)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        },
        "template": {"metadata": {"labels": labels(deployment, component)}, "spec": pod},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, object_name(deployment, component), component),
        "spec": spec,
    }


def service_of(deployment: PDDDeployment, component: str, *, name: str, **spec: Any) -> Manifest:
    """A Service in front of a component's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, name, component),
        "spec": {"selector": selector(deployment, component), **spec},
    }
