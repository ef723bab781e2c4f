"""The two ways of a request, as streams of tokens.

P-MD:      P prefills; MD pulls the KV over the line; MD's own endpoint answers.
P-RLD-MD:  P prefills; RLD takes the KV next door and streams; MD pulls meanwhile; when it has the KV, RLD is
           cut and MD goes on from the ids of prompt and eager tokens.

Both end at MD, so MD's prefix cache stays aligned with P's.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from pdd_router import metrics
from pdd_router.engines.client import Delta, Engine, Forwarded
from pdd_router.engines.pool import EnginePool
from pdd_router.engines.renderer import Rendered
from pdd_router.errors import ApiError, LeaseTooOldError, RefusedError, UpstreamError
from pdd_router.front.record import Record
from pdd_router.front.requests import ClientRequest
from pdd_router.line.site import Leased, Pulled, Site
from pdd_router.policy.sampling import PREFILL, after_eager
from pdd_router.policy.transfer import kv_bytes

# Asks P to keep the prompt's KV for one reader. A lease has one reader: the first to finish frees it.
_LEASE: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


@dataclass(frozen=True)
class Token:
    """A delta and who made it."""

    delta: Delta
    by: Literal["RLD", "MD"]


@dataclass(frozen=True)
class Prefilled:
    """P holds the prompt's KV for one reader; `cached_tokens` of it were in its cache before."""

    engine: Engine
    leased: Leased
    cached_tokens: int


class Pipelines:
    """The pipelines over the engines of this site and the sites behind the line."""

    def __init__(self, prefill: EnginePool, relay: EnginePool):
        self._prefill = prefill
        self._relay = relay
        self._finishing: set[asyncio.Task[Pulled | None]] = set()

    @property
    def relay_there(self) -> bool:
        return bool(self._relay.usable)

    async def prefill(self, rendered: Rendered, record: Record) -> Prefilled:
        """Raises ApiError when no prefill engine can do it."""
        engine = self._prefill.take(rendered.token_ids)
        record.prefill_engine = engine.name
        prefilled = await _lease(engine, rendered, record.request_id)
        record.prefilled = record.now()
        record.cached_at_prefill += prefilled.cached_tokens
        return prefilled

    @asynccontextmanager
    async def direct(
        self, site: Site, request: ClientRequest, prefilled: Sequence[Prefilled], record: Record
    ) -> AsyncIterator[Forwarded]:
        """P-MD from the prefill on: the answer of MD's own endpoint."""
        async with AsyncExitStack() as stack:
            for attempt in (1, 2):
                record.pull_began = record.now()
                prompts = [done.leased for done in prefilled]
                answering = site.answer(request.route, prompts, request.with_ids(prompts), request_id=record.request_id)
                try:
                    pulled, answer = await stack.enter_async_context(answering)
                    break
                except RefusedError as error:
                    if error.status != LeaseTooOldError.STATUS or attempt == 2:
                        raise
                record.trouble.append("lease too old for a pull, leased anew")
                prefilled = [await _lease(done.engine, done.leased, record.request_id) for done in prefilled]
            _note_transfer(pulled, prefilled, record)
            yield answer

    async def relay(
        self, site: Site, rendered: Rendered, prefilled: Prefilled, record: Record
    ) -> AsyncGenerator[Token, None]:
        """P-RLD-MD from the prefill on. Closing it early aborts RLD, the transfer and MD.

        RLD's failure only ends the eager tokens. A failed transfer leaves RLD to answer to the end. Both
        failing raises UpstreamError.
        """
        relay = self._relay.take(rendered.token_ids)
        record.relay_engine = relay.name
        eager: list[int] = []
        relay_stream = relay.stream(
            request_id=record.request_id,
            token_ids=rendered.token_ids,
            sampling_params=rendered.sampling_params,
            kv_transfer_params=prefilled.leased.kv_transfer_params,
            cache_salt=rendered.cache_salt,
        )
        async with (
            aclosing(relay_stream),
            self._transfer(site, rendered, prefilled, record) as transfer,
            aclosing(_until(relay_stream, transfer, record)) as until,
        ):
            async for delta in until:
                eager.extend(delta.token_ids)
                record.eager_tokens += len(delta.token_ids)
                yield Token(delta, "RLD")
                if delta.finish_reason is not None:
                    return
            pulled = await transfer
        if pulled is None:
            raise UpstreamError(relay.name, f"and the transfer to {site.name} failed: {record.trouble}")
        if len(eager) >= rendered.sampling_params["max_tokens"]:
            # RLD said its last token and was cut before it said that it was the last.
            yield Token(Delta([], "length"), "RLD")
            return
        record.handed_over = record.now()
        main = site.generate(
            request_id=record.request_id,
            engine=pulled.engine,
            token_ids=rendered.token_ids + eager,
            sampling_params=after_eager(rendered.sampling_params, len(eager)),
            cache_salt=rendered.cache_salt,
        )
        async with aclosing(main):
            async for delta in main:
                if record.main_first_token is None:
                    record.main_first_token = record.now()
                record.main_tokens += len(delta.token_ids)
                yield Token(delta, "MD")

    @asynccontextmanager
    async def _transfer(
        self, site: Site, rendered: Rendered, prefilled: Prefilled, record: Record
    ) -> AsyncIterator[asyncio.Task[Pulled | None]]:
        """The transfer to MD beside RLD's stream; its result is None when it failed.

        It needs a lease of its own. When RLD answered to the end before the KV has arrived, the transfer
        goes on without the request: MD needs it for the session's next turn.
        """

        async def pull() -> Pulled | None:
            try:
                second = await _lease(prefilled.engine, rendered, record.request_id + "-md")
                record.pull_began = record.now()
                with metrics.IN_FLIGHT.track_inprogress():
                    try:
                        pulled = await site.pull(second.leased, request_id=record.request_id)
                    except RefusedError as error:
                        if error.status != LeaseTooOldError.STATUS:
                            raise
                        record.trouble.append("lease too old for a pull, leased anew")
                        second = await _lease(prefilled.engine, rendered, record.request_id + "-md2")
                        pulled = await site.pull(second.leased, request_id=record.request_id)
                _note_transfer(pulled, [second], record)
                return pulled
            except ApiError as error:
                record.trouble.append(f"transfer: {error.message}")
                return None

        task = asyncio.create_task(pull(), name=f"transfer {record.request_id}")
        try:
            yield task
        except BaseException:
            task.cancel()
            raise
        if not task.done():
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)


async def _until(
    stream: AsyncGenerator[Delta, None], stop: asyncio.Task[Pulled | None], record: Record
) -> AsyncGenerator[Delta, None]:
    """RLD's deltas until MD has the KV; all of them when the transfer failed."""
    step: asyncio.Task[Delta] | None = None
    try:
        while True:
            step = step or asyncio.ensure_future(anext(stream))
            if not stop.done():
                await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
            elif stop.result() is None:
                await asyncio.wait({step})
            if step.done():
                delta = step.result()
                step = None
                yield delta
            if stop.done() and stop.result() is not None:
                return
    except StopAsyncIteration:
        return
    except ApiError as error:
        record.trouble.append(f"relay: {error.message}")
        return
    finally:
        if step is not None:
            step.cancel()
            await asyncio.wait({step})


async def _lease(engine: Engine, prompt: Rendered | Leased, request_id: str) -> Prefilled:
    generated = await engine.generate(
        request_id=request_id,
        token_ids=prompt.token_ids,
        sampling_params=PREFILL,
        kv_transfer_params=_LEASE,
        cache_salt=prompt.cache_salt,
    )
    if generated.kv_transfer_params is None:
        raise UpstreamError(engine.name, "gave no lease on the prompt's KV: is it a prefill engine with NIXL?")
    leased = Leased(prompt.token_ids, generated.kv_transfer_params, prompt.cache_salt, monotonic())
    return Prefilled(engine, leased, generated.cached_tokens)


def _note_transfer(pulled: Pulled, prefilled: Sequence[Prefilled], record: Record) -> None:
    facts = prefilled[0].engine.facts
    tokens = sum(len(done.leased.token_ids) for done in prefilled)
    size = kv_bytes(
        max(0, tokens - pulled.cached_tokens),
        kv_bytes_per_token=facts.kv_bytes_per_token,
        block_size=facts.block_size,
    )
    record.main_engine = pulled.engine
    record.transfer_seconds = pulled.seconds
    record.cached_at_main = pulled.cached_tokens
    record.line_bytes = size
    # Counted here and not at the request's end, which a transfer may outlive.
    metrics.CACHED_TOKENS.labels("main-decode").inc(pulled.cached_tokens)
    metrics.LINE_BYTES.inc(size)
