"""Patches of vLLM's NIXL connector, applied when it is loaded: a process that has none does not load it for them."""

import functools
from collections.abc import Callable
from typing import Any

CONNECTORS = ("NixlConnector", "NixlPullConnector")
"""vLLM's names of the connector whose readers pull. Others are left alone."""


def lease_seconds(transfer_config: Any) -> float:
    """How long an engine keeps a lease that nobody has begun to read: vLLM's default is 30. 0 without transfers."""
    return float(transfer_config.get_from_extra_config("kv_lease_duration", 30)) if transfer_config is not None else 0.0


def when_loaded(patch: Callable[[], None]) -> None:
    """`patch` must be idempotent: it is called whenever vLLM looks the connector up."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: PLC0415

    for name in CONNECTORS:
        load = KVConnectorFactory._registry[name]
        if patch not in getattr(load, "patches", ()):
            KVConnectorFactory._registry[name] = _load_and_patch(load, patch)


def _load_and_patch(load: Callable[[], Any], patch: Callable[[], None]) -> Callable[[], Any]:
    @functools.wraps(load)
    def load_and_patch() -> Any:
        connector = load()
        patch()
        return connector

    load_and_patch.patches = (*getattr(load, "patches", ()), patch)  # type: ignore[attr-defined]
    return load_and_patch
