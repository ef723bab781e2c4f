"""A prompt's KV into an MD's cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pdd_router.engines.client import Engine
from pdd_router.line.headers import CACHED_HEADER, ENGINE_HEADER, SECONDS_HEADER
from pdd_router.policy.sampling import PREFILL

_HIT_AT_PREFILL = "remote_prefill_cached_tokens"


@dataclass(frozen=True)
class Pull:
    """`cached_tokens` is what the engine held before; `seconds` until it held the rest."""

    cached_tokens: int
    seconds: float


async def pull(engine: Engine, prompt: Mapping[str, Any], request_id: str) -> Pull:
    """One token is generated and thrown away: what matters is that the KV is in the cache after it.

    Without P's hit among the parameters the engine reports its own (pdd_engine's plugin local_hits), which is what did
    not have to cross the line.
    """
    start = perf_counter()
    generated = await engine.generate(
        request_id=f"{request_id}-pull",
        token_ids=prompt["token_ids"],
        sampling_params=PREFILL,
        kv_transfer_params={k: v for k, v in prompt["kv_transfer_params"].items() if k != _HIT_AT_PREFILL},
        cache_salt=prompt["cache_salt"],
    )
    return Pull(generated.cached_tokens, perf_counter() - start)


def pulled_headers(engine: str, pulls: Sequence[Pull]) -> dict[str, str]:
    return {
        ENGINE_HEADER: engine,
        CACHED_HEADER: str(sum(pull.cached_tokens for pull in pulls)),
        SECONDS_HEADER: f"{sum(pull.seconds for pull in pulls):.6f}",
    }
