"""One engine alone, as the measure of a right answer: stock vLLM in a pod, no KV connector, no router."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.kube import Cluster, wait_for

NAME = "reference"


def pod(image: str, model_path: str, model: str, args: Sequence[str]) -> dict[str, Any]:
    """Runs vLLM's own server in the engine image, with the settings that decide what a client sees and nothing else."""
    arguments = [
        "serve",
        model_path,
        "--served-model-name",
        model,
        "--dtype",
        "float32",
        "--block-size",
        "32",
    ]
    arguments += ["--max-model-len", "4096", "--enforce-eager", "--kv-cache-memory-bytes", "512M"]
    arguments += ["--enable-prompt-tokens-details", *args]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"app": NAME}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "vllm",
                    "image": image,
                    "command": ["vllm"],
                    "args": [*arguments, "--host", "0.0.0.0", "--port", "8000"],
                    "env": [
                        {"name": "OMP_NUM_THREADS", "value": "1"},
                        {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"},
                        {"name": "TORCH_COMPILE_DISABLE", "value": "1"},
                        {"name": "VLLM_PLUGINS", "value": ""},
                    ],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "readinessProbe": {
                        "httpGet": {"path": "/health", "port": "http"},
                        "periodSeconds": 2,
                        "timeoutSeconds": 5,
                    },
                    "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"memory": "6Gi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
                    ],
                }
            ],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            ],
        },
    }


@contextmanager
def reference(cluster: Cluster, image: str, model_path: str, model: str, args: Sequence[str] = ()) -> Iterator[str]:
    """The URL of a reference engine, ready; the pod goes with the context."""
    cluster.delete("pod", NAME, NAMESPACE)
    cluster.apply(pod(image, model_path, model, args))
    try:
        wait_for(
            "the reference engine",
            lambda: _ready(cluster.get("pod", NAME, NAMESPACE)),
            seconds=600,
            otherwise=lambda: cluster.kubectl("-n", NAMESPACE, "logs", NAME, "--tail", "5"),
        )
        with cluster.port_forward(NAMESPACE, f"pod/{NAME}", 8000) as url:
            yield url
    finally:
        cluster.delete("pod", NAME, NAMESPACE)


def _ready(found: dict[str, Any]) -> bool:
    conditions = found["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
