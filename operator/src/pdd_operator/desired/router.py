"""What the two routers share: a Deployment and the ConfigMap that it reads again when it changes."""

import json
from collections.abc import Sequence
from typing import Any

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.pod import to_manifest
from pdd_operator.desired.labels import Manifest, metadata, object_name
from pdd_operator.desired.nodes import off_pools
from pdd_operator.desired.pods import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    LIFECYCLE,
    POD_SECURITY,
    container_port,
    deployment_of,
    http_probe,
)

ROUTER_PORT = 8000
CONFIG_KEY = "router.json"
CONFIG_MOUNT = "/etc/pdd"


def router_deployment(
    deployment: PDDDeployment,
    *,
    component: str,
    pools: Sequence[NodePool],
    image: str,
    volumes: Sequence[Manifest] = (),
    mounts: Sequence[Manifest] = (),
) -> Manifest:
    """The Deployment of one of the routers, with what that one mounts beside its configuration."""
    wanted = deployment.spec.router
    container: Manifest = {
        "name": "router",
        "image": image,
        "imagePullPolicy": wanted.image_pull_policy,
        "args": ["--config", f"{CONFIG_MOUNT}/{CONFIG_KEY}"],
        "ports": [container_port("http", ROUTER_PORT)],
        "resources": to_manifest(wanted.resources),
        "readinessProbe": http_probe("/readyz", periodSeconds=2, failureThreshold=2),
        "livenessProbe": http_probe("/healthz", periodSeconds=10, failureThreshold=3),
        "lifecycle": LIFECYCLE,
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 a mount in the pod
            *mounts,
        ],
    }
    pod: Manifest = {
        **off_pools(pools),
        "serviceAccountName": object_name(deployment, "router"),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": object_name(deployment, component)}},
            {"name": "tmp", "emptyDir": {}},
            *volumes,
        ],
    }
    return deployment_of(
        deployment,
        component,
        replicas=wanted.replicas,
        surge=1,
        unavailable=0,
        progress_deadline=600,
        pod=pod,
    )


def router_config(deployment: PDDDeployment, component: str, content: dict[str, Any]) -> Manifest:
    """The ConfigMap of one of the routers."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(deployment, object_name(deployment, component), component),
        "data": {CONFIG_KEY: json.dumps(content, indent=2) + "\n"},
    }
