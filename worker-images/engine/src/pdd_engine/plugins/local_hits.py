"""A decode engine tells how much of a prompt it had itself, request by request.

vLLM counts tokens that came over NIXL as cached tokens too: after a pull, `usage.prompt_tokens_details.cached_tokens`
is the whole prompt, whether one block travelled or all of them. How well the caches of two sites agree is what PDD
decides on, so with this plugin it is the engine's own prefix-cache hit. `remote_prefill_cached_tokens` in the
transfer parameters still overrides it, and the metrics stay as they are.
"""

import dataclasses
from typing import Any

from pdd_engine.plugins.version import is_our_vllm


def register() -> None:
    """Called by vLLM once in each of its processes; the one that serves HTTP uses it."""
    if not is_our_vllm("cached_tokens of a request whose KV came from elsewhere is its whole prompt"):
        return
    from vllm.v1.engine.output_processor import OutputProcessor  # noqa: PLC0415

    update_stats = OutputProcessor._update_stats_from_output
    if getattr(update_stats, "counts_local_hits", False):
        return

    def update_stats_and_keep_local_hits(processor: Any, state: Any, output: Any, *args: Any) -> None:
        update_stats(processor, state, output, *args)
        # What follows reads the number of cached tokens from here.
        prefill = output.prefill_stats
        if prefill is not None and prefill.num_external_cached_tokens:
            output.prefill_stats = dataclasses.replace(prefill, num_cached_tokens=prefill.num_local_cached_tokens)

    update_stats_and_keep_local_hits.counts_local_hits = True  # type: ignore[attr-defined]
    OutputProcessor._update_stats_from_output = update_stats_and_keep_local_hits
