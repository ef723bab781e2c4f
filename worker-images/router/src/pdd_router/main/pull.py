"""Prompts' KV into the MDs' caches."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

from pdd_router.engines.client import Engine
from pdd_router.errors import LeaseTooOldError
from pdd_router.line.headers import CACHED_HEADER, ENGINE_HEADER, SECONDS_HEADER
from pdd_router.policy.affinity import chunk_hashes, extends
from pdd_router.policy.sampling import PREFILL

_HIT_AT_PREFILL = "remote_prefill_cached_tokens"

# P keeps the blocks of a lease for 30 s until MD begins to renew it. A pull must have reached MD well before that:
# after it P gives the blocks to others, and MD would read theirs.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Pull:
    """`cached_tokens` is what the engine held before; `seconds` until it held the rest, a wait included."""

    cached_tokens: int
    seconds: float


class Pulls:
    """The pulls of a site's engines.

    A session's next turn may come while the KV of the last one is still on the line. Pulled at once it would fetch all
    of that again; so it waits for the pull that it extends, and fetches what is new.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[None], tuple[str, list[int]]] = {}

    async def pull(self, engine: Engine, prompt: Mapping[str, Any], request_id: str) -> Pull:
        """Returns when the engine holds the prompt's KV."""
        hashes = chunk_hashes(prompt["token_ids"])
        extended = {
            done for done, (name, earlier) in self._running.items() if name == engine.name and extends(hashes, earlier)
        }
        start = perf_counter()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[done] = (engine.name, hashes)
        try:
            if extended:
                await asyncio.wait(extended, timeout=_PATIENCE_SECONDS)
            if monotonic() > prompt["usable_until"]:
                raise LeaseTooOldError(request_id)
            cached = await _pull(engine, prompt, request_id)
        finally:
            del self._running[done]
            done.set_result(None)
        return Pull(cached, perf_counter() - start)


async def _pull(engine: Engine, prompt: Mapping[str, Any], request_id: str) -> int:
    """One token is generated and thrown away: what matters is that the KV is in the cache after it.

    Without P's hit among the parameters the engine reports its own (pdd_engine's plugin local_hits), which is what did
    not have to cross the line.
    """
    generated = await engine.generate(
        request_id=f"{request_id}-pull",
        token_ids=prompt["token_ids"],
        sampling_params=PREFILL,
        kv_transfer_params={k: v for k, v in prompt["kv_transfer_params"].items() if k != _HIT_AT_PREFILL},
        cache_salt=prompt["cache_salt"],
    )
    return generated.cached_tokens


def pulled_headers(engine: str, pulls: Sequence[Pull]) -> dict[str, str]:
    return {
        ENGINE_HEADER: engine,
        CACHED_HEADER: str(sum(pull.cached_tokens for pull in pulls)),
        SECONDS_HEADER: f"{sum(pull.seconds for pull in pulls):.6f}",
    }
