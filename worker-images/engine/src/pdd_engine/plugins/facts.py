"""`GET /pdd/v1/facts`: what an engine is, for those who check that the roles fit together."""

import asyncio
import logging
import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import State

from pdd_engine.plugins import nixl
from pdd_engine.plugins.fingerprint import (
    FingerprintError,
    adapters_fingerprint,
    tokenizer_fingerprint,
    weights_fingerprint,
)

logger = logging.getLogger("vllm.pdd.facts")


class FactsPlugin:
    """A vLLM endpoint plugin of every engine."""

    name = "pdd_facts"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_route("/pdd/v1/facts", _answer, methods=["GET"])

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        config = engine_client.vllm_config
        state.pdd_facts = facts(config, args, role=os.environ.get("PDD_ROLE", ""))
        # Seconds of reading for a large model: in a thread, before the server says that it is ready.
        state.pdd_facts |= await asyncio.to_thread(fingerprints, config, args)


async def _answer(request: Request) -> dict[str, object]:
    answer: dict[str, object] = request.app.state.pdd_facts
    return answer


def facts(config: Any, args: Namespace, role: str) -> dict[str, object]:
    import vllm  # noqa: PLC0415 - fastapi and starlette are there without it, in tests

    model, cache = config.model_config, config.cache_config
    return {
        "role": role,
        "model": model.model,
        "revision": model.revision or "",
        "served_model_name": args.served_model_name[0] if args.served_model_name else model.model,
        "vllm_version": vllm.__version__,
        "dtype": _dtype(model),
        "kv_cache_dtype": _dtype(model) if cache.cache_dtype == "auto" else cache.cache_dtype,
        "block_size": cache.block_size,
        "max_model_len": model.max_model_len,
        "kv_bytes_per_token": kv_bytes_per_token(config),
        "kv_cache_tokens": kv_cache_tokens(cache),
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "position_seeds": position_seeds(config),
        "kv_lease_duration": nixl.lease_seconds(config.kv_transfer_config),
    }


def _dtype(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")


def kv_bytes_per_token(config: Any) -> int:
    """KV of one token in all layers and on all tensor-parallel ranks, replicated heads counted as often as kept.

    For models whose layers all keep attention state of every token: not for sliding windows or state-space layers,
    of which it is the upper bound.
    """
    from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype  # noqa: PLC0415

    model, parallel = config.model_config, config.parallel_config
    element = kv_cache_dtype_str_to_dtype(config.cache_config.cache_dtype, model).itemsize
    # Multi-head latent attention keeps one vector for K and V together, whose size vLLM gives as the head size.
    vectors = 1 if model.use_mla else 2 * model.get_num_kv_heads(parallel)
    per_rank_and_layer = vectors * model.get_head_size() * element
    return int(per_rank_and_layer * model.get_total_num_hidden_layers() * parallel.tensor_parallel_size)


def kv_cache_tokens(cache: Any) -> int:
    """What one engine core's KV cache holds. The engine core tells its API server when it is ready."""
    # Where groups of layers use blocks of their own, blocks times their size would be too much: vLLM has counted.
    return int(cache.kv_cache_size_tokens or (cache.num_gpu_blocks or 0) * cache.block_size)


def position_seeds(config: Any) -> bool:
    """Whether the noise of a seeded sample is a hash of the seed and the position in the sequence.

    So it is in vLLM's second model runner (v1/worker/gpu/sample/gumbel.py): an answer that goes on at another engine
    goes on with the same noise. The first one, and that is a CPU's, has a generator that counts the samples drawn.
    With speculation the draw also depends on what was guessed.
    """
    return bool(config.use_v2_model_runner) and config.speculative_config is None


def fingerprints(config: Any, args: Namespace) -> dict[str, str]:
    model, cache_dir = config.model_config, config.load_config.download_dir
    return {
        "weights_fingerprint": known(lambda: weights_fingerprint(model.model, model.revision, cache_dir)),
        "tokenizer_fingerprint": known(
            lambda: tokenizer_fingerprint(model.tokenizer, model.tokenizer_revision, cache_dir)
        ),
        "adapters_fingerprint": known(lambda: adapters_fingerprint(adapters(args), cache_dir)),
    }


def adapters(args: Namespace) -> dict[str, str]:
    """Name to path of the LoRA adapters that an engine or a renderer starts with."""
    return {module.name: module.path for module in args.lora_modules or ()}


def known(fingerprint: Callable[[], str]) -> str:
    """Where it is not to be found out, the word unknown: who cannot tell serves, but equals none that can."""
    try:
        return fingerprint()
    except FingerprintError as error:
        logger.warning("no fingerprint: %s", error)
        return "unknown"
