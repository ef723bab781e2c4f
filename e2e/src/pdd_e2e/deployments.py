"""The PDDDeployments of the demo and the proofs."""

from typing import Any

from pdd_e2e.environment import Images

NAMESPACE = "llm"

# On a machine without accelerators: fp32, because a handoff is token-exact in it (bf16: 6 of 10 runs).
_CPU_RESOURCES = {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"memory": "6Gi"}}


def member(name: str, **access: Any) -> dict[str, Any]:
    """A MemberCluster with the pool that localkube gives the cluster of this name."""
    pool, chip = {"site-a": ("compute", "chip-a"), "site-b": ("memory", "chip-b")}[name]
    # Invented, in the proportions of real flagships: a is strong in compute, b in memory and cheaper a token.
    numbers = {"chip-a": (990, 80, 3350, 900, "2.00"), "chip-b": (148, 96, 4000, 900, "2.10")}[chip]
    keys = ("peakTFLOPS", "memoryGiB", "memoryGBps", "interconnectGBps", "pricePerHour")
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {
            **access,
            "nodePools": [
                {
                    "name": pool,
                    "selector": {"matchLabels": {"pdd.dev/pool": pool}},
                    "tolerations": [{"key": "pdd.dev/chip", "operator": "Equal", "value": chip}],
                    "resourceName": f"example.com/{chip}",
                    "chip": {"name": chip, **dict(zip(keys, numbers, strict=True))},
                }
            ],
        },
    }


def line(bandwidth: str = "100M") -> dict[str, Any]:
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "WANLink",
        "metadata": {"name": "a-b"},
        "spec": {
            "ends": [{"cluster": "site-a"}, {"cluster": "site-b"}],
            "bandwidth": bandwidth,
            "budget": {"roundTrip": "40ms"},
        },
    }


def deployment(
    name: str, model_path: str, images: Images, *, tolerated_wait: str = "500ms", max_model_len: int = 4096
) -> dict[str, Any]:
    """One engine a role, of a model that lies in the engine image."""
    role = {"resources": _CPU_RESOURCES}
    return {
        "apiVersion": "pdd.dev/v1alpha1",
        "kind": "PDDDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {
                "name": name,
                "source": {"image": {"path": model_path}},
                "maxModelLen": max_model_len,
                "dtype": "float32",
            },
            "engine": {"image": images.engine},
            "router": {"image": images.router},
            "prefill": {"cluster": "site-a", "nodePool": "compute", "replicas": 1, **role},
            "relayDecode": {"nodePool": "compute", "replicas": 1, **role},
            "mainDecode": {"placements": [{"cluster": "site-b", "nodePool": "memory", "replicas": 1, **role}]},
            "routing": {"toleratedWait": tolerated_wait, "requestOverrides": "Allowed"},
        },
    }


def assistant(images: Images) -> dict[str, Any]:
    """The demo: a small real model."""
    return deployment("assistant", "/models/smollm2-135m", images)


# With these the tiny model's answers can have tool calls and reasoning: both parsers do without special tokens. Who
# wants reasoning says so in chat_template_kwargs.
PARSERS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
PARSERS += ["--default-chat-template-kwargs", '{"enable_thinking": false}']
ADAPTER = "tiny-adapter"
TINY_ARGS = [*PARSERS, "--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}=/models/tiny-adapter"]
"""Of the engines of `tiny`, and of the one alone that they are compared with."""


def tiny(images: Images) -> dict[str, Any]:
    """The proofs: random weights, same architecture and tokenizer, ten times as fast."""
    manifest = deployment("tiny", "/models/tiny", images, tolerated_wait="50ms")
    # 3 KB a token: room for 80,000 of them, and memory left for the other engines of a small machine.
    manifest["spec"]["engine"]["args"] = ["--kv-cache-memory-bytes", "256M", *TINY_ARGS]
    return manifest
