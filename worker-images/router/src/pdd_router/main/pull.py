"""Prompts' KV into the MDs' caches."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any

from pdd_router.engines.client import Engine, Work
from pdd_router.engines.lease import timed
from pdd_router.errors import LeaseTooOldError
from pdd_router.policy.affinity import chunk_hashes, extends
from pdd_router.policy.sampling import PREFILL

_HIT_AT_PREFILL = "remote_prefill_cached_tokens"

# A lease of 30 s can be used for 20.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Pull:
    """`cached_tokens` is what the engine held before; `seconds` until it held the rest, a wait included."""

    engine: str
    cached_tokens: int
    seconds: float


class Pulls:
    """The pulls of a site's engines.

    A session's next turn may come while the KV of the last one is still on the line. Pulled at once it would fetch all
    of that again; so it waits for the pull that it extends, and fetches what is new.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[None], tuple[str, list[int]]] = {}

    async def pull(self, engine: Engine, work: Work, lease: Mapping[str, Any], headers: Mapping[str, str]) -> Pull:
        """Returns when the engine holds the prompt's KV. Raises LeaseTooOldError, and what the engine raises."""
        hashes = chunk_hashes(work.token_ids)
        extended = {
            done for done, (name, earlier) in self._running.items() if name == engine.name and extends(hashes, earlier)
        }
        start = perf_counter()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[done] = (engine.name, hashes)
        try:
            if extended:
                await asyncio.wait(extended, timeout=_PATIENCE_SECONDS)
            left = lease["usable_until"] - monotonic()
            if left < 0:
                raise LeaseTooOldError(headers.get("X-Request-Id", "a request"))
            cached = await _pull(engine, work, lease["kv_transfer_params"], left, headers)
        finally:
            del self._running[done]
            done.set_result(None)
        return Pull(engine.name, cached, perf_counter() - start)


async def _pull(
    engine: Engine, work: Work, kv_transfer_params: Mapping[str, Any], usable_seconds: float, headers: Mapping[str, str]
) -> int:
    """One token is generated and thrown away: what matters is that the KV is in the cache after it.

    Without P's hit among the parameters the engine reports its own (pdd_engine's plugin local_hits), which is what did
    not have to cross the line. The engine checks the lease's age once more, when its scheduler sees the request
    (plugin lease_guard): it may hang between here and there.
    """
    params = {k: v for k, v in kv_transfer_params.items() if k != _HIT_AT_PREFILL}
    request_id = headers.get("X-Request-Id")
    generated = await engine.generate(
        replace(work, sampling_params=PREFILL, reasoning_ended=None, reasoning_parser_kwargs=None),
        headers=dict(headers) | ({"X-Request-Id": f"{request_id}-pull"} if request_id else {}),
        kv_transfer_params=timed(params, usable_seconds),
    )
    return generated.cached_tokens
