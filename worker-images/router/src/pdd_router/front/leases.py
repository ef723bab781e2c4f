"""KV leases at prefill engines: taken, handed to one reader each, or given back."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Protocol

import structlog

from pdd_router import metrics
from pdd_router.engines.client import Engine, Work
from pdd_router.engines.lease import USABLE_SHARE, Lease
from pdd_router.errors import ApiError, UpstreamError
from pdd_router.origin import REQUEST_ID
from pdd_router.policy.compatibility import form
from pdd_router.policy.sampling import PREFILL, for_prefill

_LOG = structlog.get_logger(__name__)

# Asks P to keep the prompt's KV for one reader. A lease has one reader: the first to finish frees it.
_LEASE: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


@dataclass
class Prefilled:
    """P holds the prompt's KV for one reader; `cached_tokens` of it were in its cache before.

    `at` is when, by this process's monotonic clock.
    """

    engine: Engine
    kv_transfer_params: dict[str, Any]
    cached_tokens: int
    prompt_logprobs: list[Any] | None
    at: float
    _reader: "Reader | None" = None
    _read: bool = False

    @property
    def reads(self) -> list[Any]:
        """The form of the KV cache (policy/compatibility.py), which its reader must have too."""
        return form(self.engine.facts.model_dump())

    def hand_over(self, reader: "Reader") -> Lease:
        """To the one reader, just before it is asked: from here on the blocks are the reader's to free."""
        self._reader = reader
        return Lease(self.kv_transfer_params, self.at + self.engine.facts.kv_lease_duration * USABLE_SHARE)

    def read(self) -> None:
        """The reader has what it needs, and P knows."""
        self._read = True

    @property
    def request_id(self) -> str:
        """P's own id of the lease."""
        return str(self.kv_transfer_params.get("remote_request_id", ""))


class Reader(Protocol):
    """Who is asked to read a lease: an engine or a site."""

    async def forget(self, request_ids: Sequence[str]) -> list[str]:
        """Those of the leases that no engine of it has begun to read, and none will."""
        ...


class Leases:
    def __init__(self) -> None:
        self._numbers = count()
        self._returns: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def taken(self, engine: Engine, work: Work, headers: Mapping[str, str]) -> AsyncIterator[Prefilled]:
        """Prefills. Whatever ends the context, a lease that no reader got is given back at once."""
        async with self._lease(engine, work, headers, for_prefill(work.sampling_params)) as prefilled:
            yield prefilled

    @asynccontextmanager
    async def again(
        self, first: Prefilled, work: Work, headers: Mapping[str, str], *, given: Prefilled | None = None
    ) -> AsyncIterator[Prefilled]:
        """Another lease on a prompt that was prefilled a moment ago: a prefix hit. `given` is used instead if it is
        there, and stays its owner's to give back."""
        if given is not None:
            yield given
            return
        async with self._lease(first.engine, work, headers, PREFILL) as prefilled:
            yield prefilled

    @asynccontextmanager
    async def _lease(
        self, engine: Engine, work: Work, headers: Mapping[str, str], sampling_params: Mapping[str, Any]
    ) -> AsyncIterator[Prefilled]:
        request_id = f"{headers[REQUEST_ID]}-p{next(self._numbers)}"
        asked = Work(work.token_ids, sampling_params, work.model, work.cache_salt, work.priority)
        began = monotonic()
        try:
            generated = await engine.generate(
                asked, headers={**headers, REQUEST_ID: request_id}, kv_transfer_params=_LEASE
            )
        except asyncio.CancelledError:
            # The client left. P may have been done before it heard so, and would keep the blocks for nobody.
            self._give_back(engine, f"generate-tokens-{request_id}")
            raise
        if generated.kv_transfer_params is None:
            raise UpstreamError(engine.name, "gave no lease on the prompt's KV: is it a prefill engine with NIXL?")
        params = generated.kv_transfer_params
        at = engine.here(params["pdd_leased_at"]) if "pdd_leased_at" in params else monotonic()
        if at is not None and at > monotonic():
            at = None  # no clock of the host that its API server runs on
        prefilled = Prefilled(
            engine, params, generated.cached_tokens, generated.prompt_logprobs, began if at is None else at
        )
        try:
            yield prefilled
        finally:
            if prefilled._read:
                metrics.LEASES.labels("read").inc()
            else:
                self._give_back(engine, prefilled.request_id, prefilled._reader)

    def _give_back(self, engine: Engine, request_id: str, reader: Reader | None = None) -> None:
        task = asyncio.create_task(_release(engine, request_id, reader), name=f"release {request_id}")
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)


async def _release(engine: Engine, request_id: str, reader: Reader | None) -> None:
    """First its reader says that it will not read: P cannot keep it from reading blocks that are somebody else's. One
    that has begun to read ends the lease itself when it is aborted."""
    try:
        if reader is not None and request_id not in await reader.forget([request_id]):
            metrics.LEASES.labels("left to its reader").inc()
            return
        await engine.release([request_id])
        metrics.LEASES.labels("given back").inc()
    except ApiError as error:
        metrics.LEASES.labels("left to expire").inc()
        _LOG.warning("lease not given back, it ends by itself", engine=engine.name, error=error.message)
