"""The pod of an engine: what all roles and the renderer share."""

from collections.abc import Iterable

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.pod import EnvVar, Resources, to_manifest
from pdd_operator.desired.labels import Manifest
from pdd_operator.desired.pods import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    LIFECYCLE,
    POD_SECURITY,
    container_port,
    http_probe,
)
from pdd_operator.desired.weights import weights

HTTP_PORT = 8000
SIDE_CHANNEL_PORT = 5600

_STARTUP_PERIOD = 2


def engine_pod(
    deployment: PDDDeployment,
    *,
    role: str,
    image: str,
    tensor: int = 1,
    chips: Manifest,
    resources: Resources,
    args: Iterable[str] = (),
    env: Iterable[EnvVar] = (),
    nodes: Manifest,
) -> Manifest:
    """A pod spec; `nodes` says where it lands, `chips` what it holds there."""
    engine, model = deployment.spec.engine, deployment.spec.model
    source = weights(model.source)
    told = {
        "PDD_ROLE": role,
        "PDD_MODEL": source.model,
        "PDD_MODEL_REVISION": source.revision,
        "PDD_SERVED_MODEL_NAME": model.name,
        "PDD_MAX_MODEL_LEN": str(model.max_model_len),
        "PDD_DTYPE": model.dtype,
        "PDD_BLOCK_SIZE": str(model.kv_cache.block_size),
        "PDD_TENSOR_PARALLEL": str(tensor),
        "PDD_PORT": str(HTTP_PORT),
        "PDD_SIDE_CHANNEL_PORT": str(SIDE_CHANNEL_PORT),
    }
    variables: list[Manifest] = [
        *({"name": name, "value": value} for name, value in told.items()),
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *source.env,
        *map(to_manifest, engine.env),
        *map(to_manifest, env),
    ]
    container: Manifest = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": engine.image_pull_policy,
        "args": [*engine.args, *args],
        "env": list({variable["name"]: variable for variable in variables}.values()),
        "ports": [container_port("http", HTTP_PORT), container_port("kv", SIDE_CHANNEL_PORT)],
        "resources": {
            "requests": {**resources.requests, **chips},
            "limits": {**resources.limits, **chips},
        },
        "startupProbe": http_probe(
            "/health",
            periodSeconds=_STARTUP_PERIOD,
            failureThreshold=-(-engine.startup_timeout_seconds // _STARTUP_PERIOD),
        ),
        "readinessProbe": http_probe("/health", periodSeconds=5, failureThreshold=3),
        # /health knows this engine only: 503 once its core is dead, whatever its peers and the line do. A busy engine
        # may answer late, and a restart costs all its KV and the loading of its weights: hence a minute.
        "livenessProbe": http_probe("/health", periodSeconds=10, timeoutSeconds=10, failureThreshold=6),
        "lifecycle": LIFECYCLE,
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 a mount in the pod
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 a mount in the pod
            *source.mounts,
        ],
    }
    return {
        **nodes,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "tmp", "emptyDir": {}},
            *source.volumes,
        ],
    }
