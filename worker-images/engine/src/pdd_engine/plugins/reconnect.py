"""A decode engine whose connection to a prefill engine broke meets it again.

UCX does not bring a broken connection back, and the agents have to be introduced once more. vLLM 0.32.0 does so when
NIXL has dropped what it knew of the other engine. NIXL 1.5 does not drop it: each read fails from then on, the prompt
is computed here, and after one interruption of the line no KV crosses it until one of the engines starts anew. So an
engine from which a read failed is met again, as soon as no other read from it is under way. vLLM waits longer each
time that it does not help.
"""

import time
from typing import Any

from pdd_engine.plugins import nixl
from pdd_engine.plugins.version import is_our_vllm


def register() -> None:
    """Called by vLLM once in each of its processes: the workers use it."""
    if is_our_vllm("after an interruption of the line no KV crosses it any more"):
        nixl.when_loaded(_patch)


def _patch() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker  # noqa: PLC0415

    if getattr(NixlPullConnectorWorker, "pdd_reconnects", False):
        return
    cleanup = NixlPullConnectorWorker._cleanup_remote_engines

    def drop_failed_and_cleanup(worker: Any) -> None:
        failed = worker._failed_remote_engines - worker._invalid_remote_engines
        for engine_id in failed & worker._remote_agents.keys():
            worker._mark_remote_engine_invalid(engine_id, time.perf_counter())
        cleanup(worker)

    NixlPullConnectorWorker._cleanup_remote_engines = drop_failed_and_cleanup
    NixlPullConnectorWorker.pdd_reconnects = True
