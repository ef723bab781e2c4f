"""`GET /pdd/v1/facts`: what an engine is, for those who check that the roles fit together."""

import os
from argparse import Namespace
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import State


class FactsPlugin:
    """A vLLM endpoint plugin of every engine."""

    name = "pdd_facts"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_route("/pdd/v1/facts", _answer, methods=["GET"])

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        state.pdd_facts = facts(engine_client.vllm_config, args, role=os.environ.get("PDD_ROLE", ""))


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
        "dtype": str(model.dtype).removeprefix("torch."),
        "block_size": cache.block_size,
        "max_model_len": model.max_model_len,
        "kv_bytes_per_token": kv_bytes_per_token(config),
    }


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
