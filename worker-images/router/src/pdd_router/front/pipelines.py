"""From work to tokens: the two pipelines, and what is done when a part of one fails.

P-MD:      P prefills; MD pulls the KV over the line and decodes.
P-RLD-MD:  P prefills; RLD takes the KV next door and streams; MD pulls meanwhile; when it has the KV, RLD is
           cut and MD goes on from the ids of prompt and eager tokens.

Both end at MD, so MD's prefix cache stays aligned with P's.

An answer that loses its engine goes on elsewhere from the ids that are known: prompt and tokens so far are prefilled
again. Where that is not exact (policy/features.py) and tokens are out already, it ends with an error instead.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Literal

from pdd_router import metrics, timeouts
from pdd_router.engines.client import Delta, Engine, Work
from pdd_router.engines.pool import EnginePool
from pdd_router.errors import ApiError, LeaseTooOldError, UnavailableError, UpstreamError
from pdd_router.front.ask import Ask
from pdd_router.front.leases import Leases, Prefilled
from pdd_router.front.record import Record
from pdd_router.line.site import Pulled, Site
from pdd_router.line.sites import Sites
from pdd_router.policy.compatibility import form
from pdd_router.policy.features import stays_because
from pdd_router.policy.pipeline import Choice, Observed, Pipeline, choose
from pdd_router.policy.sampling import after, for_decode
from pdd_router.policy.transfer import kv_bytes

# Between two tries of a request that lost its engine: until another one has been found out about.
_PAUSE_SECONDS = 0.5

# A request that so many engines failed on without a token more is likely why they did: it must not take all of them.
_MOST_FAILURES = 3


@dataclass(frozen=True)
class Token:
    """A delta and who made it. `prefilled` comes with the first one: what P knows about the prompt."""

    delta: Delta
    by: Literal["RLD", "MD"]
    prefilled: Prefilled


@dataclass
class _Run:
    """One work on its way, over all its tries."""

    work: Work
    ask: Ask
    record: Record
    stays: str | None
    enough: asyncio.Event
    made: list[int] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    lost_at: float | None = None
    failed_with: list[int] = field(default_factory=list)
    """For each engine that failed with it in hand: how many tokens were out then."""

    def rest(self) -> Work:
        """What is left to do. Raises ValueError when that is nothing."""
        if not self.made:
            return self.work
        params = after(self.work.sampling_params, len(self.made))
        params.pop("prompt_logprobs", None)
        return replace(self.work, token_ids=self.work.token_ids + self.made, sampling_params=params)


class Pipelines:
    """The pipelines over the engines of this site and the sites behind the line."""

    def __init__(self, prefill: EnginePool, relay: EnginePool, sites: Sites):
        self._prefill = prefill
        self._relay = relay
        self._sites = sites
        self._leases = Leases()
        self._finishing: set[asyncio.Task[Pulled | None]] = set()

    async def answer(
        self, work: Work, ask: Ask, record: Record, *, enough: asyncio.Event
    ) -> AsyncGenerator[Token, None]:
        """The tokens of an answer, the last with a finish_reason. Closing it early aborts whatever it has begun; but
        not a transfer when `enough` is set, which says that the answer is complete (a stop string ended it).

        Raises ApiError: at once when an engine is missing before the first token, within RECOVERY_SECONDS when one was
        lost and no other could go on.
        """
        run = _Run(work, ask, record, self._stays(work), enough)
        if ask.forced is Pipeline.RELAY and run.stays is not None:
            raise ApiError(400, f"P-RLD-MD was forced, but {run.stays!r} must stay on one engine", param=run.stays)
        while True:
            try:
                async with aclosing(self._try(run)) as tokens:
                    async for token in tokens:
                        run.made.extend(token.delta.token_ids)
                        if token.delta.finish_reason is not None:
                            enough.set()
                        yield token
                if enough.is_set():
                    return
                raise UpstreamError(record.main_engine or "main decode", "ended an answer without a finish_reason")
            except (UpstreamError, UnavailableError) as error:
                if enough.is_set():
                    return
                await self._may_try_again(run, error)

    async def _may_try_again(self, run: _Run, error: UpstreamError | UnavailableError) -> None:
        """Returns after a pause when it may; else raises what the client is told."""
        if run.made and run.stays is not None:
            what = f"{error.message}; an answer with {run.stays!r} cannot go on at another engine"
            raise UpstreamError(run.record.main_engine or "main decode", what)
        if not run.made and isinstance(error, UnavailableError):
            raise error
        now = monotonic()
        run.lost_at = run.lost_at or now
        if now - run.lost_at > timeouts.RECOVERY_SECONDS:
            raise error
        if isinstance(error, UpstreamError):
            run.failed.add(error.who)
            if error.took_it:
                run.failed_with.append(len(run.made))
        if run.failed_with.count(len(run.made)) >= _MOST_FAILURES:
            raise error
        run.record.trouble.append(error.message)
        metrics.RESUMED.inc()
        await asyncio.sleep(_PAUSE_SECONDS)

    def _stays(self, work: Work) -> str | None:
        facts = [engine.facts for engine in self._prefill.usable]
        return stays_because(work.sampling_params, position_seeds=bool(facts) and facts[0].position_seeds)

    async def _try(self, run: _Run) -> AsyncGenerator[Token, None]:
        """The pipeline from the prefill on, for what of the answer is not there yet."""
        try:
            work = run.rest()
        except ValueError:
            work = replace(run.work, token_ids=run.work.token_ids + run.made)
            prefilled = Prefilled(self._prefill.take(work.token_ids), {}, 0, None, 0.0)
            yield Token(Delta([], "length"), "MD", prefilled)
            return
        engine = self._prefill.take(work.token_ids, avoid=run.failed)
        site = self._site(run, engine)
        run.record.prefill_engine = engine.name
        async with AsyncExitStack() as stack:
            async with run.ask.one_prefill_of(work.token_ids):
                prefilled = await stack.enter_async_context(self._leases.taken(engine, work, run.ask.headers))
            run.record.prefill_done(prefilled.cached_tokens, first=not run.made)
            if site is None:
                choice = Choice(Pipeline.RELAY, 0.0, "no main-decode engine is left for it")
            else:
                choice = self._choose(run, work, prefilled, site)
            run.record.chosen(choice)
            if site is None:
                tokens = self._relay_alone(run, work, prefilled)
            elif choice.pipeline is Pipeline.RELAY:
                tokens = self._relayed(run, work, prefilled, site)
            else:
                tokens = self._direct(run, work, prefilled, site)
            async with aclosing(tokens):
                async for token in tokens:
                    yield token

    def _site(self, run: _Run, prefill: Engine) -> Site | None:
        """The site for the decode. None when there is none, and an answer that has begun can end on RLD instead:
        the one case where it may, because the alternative is half an answer."""
        try:
            return self._sites.take(form(prefill.facts.model_dump()))
        except UnavailableError:
            if run.made and self._relay.usable:
                return None
            raise

    def _choose(self, run: _Run, work: Work, prefilled: Prefilled, site: Site) -> Choice:
        facts, routing = prefilled.engine.facts, run.ask.routing
        observed = Observed(
            prompt_tokens=len(work.token_ids),
            cached_at_prefill=prefilled.cached_tokens,
            kv_bytes_per_token=facts.kv_bytes_per_token,
            block_size=facts.block_size,
            bits_per_second=site.known.bandwidth_bits_per_second,
            round_trip_seconds=site.round_trips.percentile(50) or 0.0,
        )
        return choose(
            observed,
            tolerated_wait_seconds=routing.tolerated_wait_millis / 1e3,
            # A resumed answer is late already, and its prompt's KV is most likely still there.
            forced=Pipeline.DIRECT if run.made else run.ask.forced,
            cannot_hand_off=run.stays,
            relay_there=self._relay.can_read(prefilled.reads),
        )

    async def _direct(self, run: _Run, work: Work, prefilled: Prefilled, site: Site) -> AsyncGenerator[Token, None]:
        record, reads = run.record, prefilled.reads
        record.pull_began = record.now()
        decode = replace(work, sampling_params=for_decode(work.sampling_params))
        for lease in (prefilled, None):
            async with self._leases.again(prefilled, work, run.ask.headers, given=lease) as leased:
                answer = site.pull_and_generate(decode, leased.hand_over(site), reads=reads, headers=run.ask.headers)
                try:
                    async with aclosing(answer):
                        async for event in answer:
                            if isinstance(event, Pulled):
                                leased.read()
                                _note_transfer(event, prefilled, work, record)
                            else:
                                record.from_main(len(event.token_ids))
                                yield Token(event, "MD", prefilled)
                    return
                except LeaseTooOldError:
                    if lease is None:
                        raise
                    record.trouble.append("lease too old for a pull, leased anew")

    async def _relayed(self, run: _Run, work: Work, prefilled: Prefilled, site: Site) -> AsyncGenerator[Token, None]:
        """RLD's failure only ends the eager tokens. A failed transfer leaves RLD to answer to the end. Both failing
        raises UpstreamError."""
        record = run.record
        relay = self._relay.take(work.token_ids, reads=prefilled.reads, avoid=run.failed)
        record.relay_engine = relay.name
        eager: list[int] = []
        relay_stream = relay.stream(
            replace(work, sampling_params=for_decode(work.sampling_params)),
            headers=run.ask.headers,
            kv_transfer_params=prefilled.hand_over(relay).params(),
        )
        async with (
            aclosing(relay_stream),
            self._transfer(run, work, prefilled, site) as transfer,
            aclosing(_until(relay_stream, transfer, record, cut_at=run.ask.cut_at)) as until,
        ):
            async for delta in until:
                prefilled.read()
                eager.extend(delta.token_ids)
                record.eager_tokens += len(delta.token_ids)
                yield Token(delta, "RLD", prefilled)
                if delta.finish_reason is not None:
                    return
            await relay_stream.aclose()  # RLD is free while the rest of the KV is on its way
            pulled = await transfer
        if pulled is None:
            raise UpstreamError(relay.name, f"and the transfer to {site.name} failed: {record.trouble}")
        try:
            rest = replace(
                work,
                token_ids=work.token_ids + eager,
                sampling_params=for_decode(after(work.sampling_params, len(eager))),
                reasoning_ended=None,  # the prompt of the rest tells
            )
        except ValueError:
            # RLD said its last token and was cut before it said that it was the last.
            yield Token(Delta([], "length"), "RLD", prefilled)
            return
        record.handed_over = record.now()
        async with aclosing(site.generate(rest, engine=pulled.engine, headers=run.ask.headers)) as main:
            async for delta in main:
                record.from_main(len(delta.token_ids))
                yield Token(delta, "MD", prefilled)

    async def _relay_alone(self, run: _Run, work: Work, prefilled: Prefilled) -> AsyncGenerator[Token, None]:
        relay = self._relay.take(work.token_ids, reads=prefilled.reads)
        run.record.relay_engine = relay.name
        stream = relay.stream(
            replace(work, sampling_params=for_decode(work.sampling_params)),
            headers=run.ask.headers,
            kv_transfer_params=prefilled.hand_over(relay).params(),
        )
        async with aclosing(stream):
            async for delta in stream:
                prefilled.read()
                run.record.eager_tokens += len(delta.token_ids)
                yield Token(delta, "RLD", prefilled)

    @asynccontextmanager
    async def _transfer(
        self, run: _Run, work: Work, prefilled: Prefilled, site: Site
    ) -> AsyncIterator[asyncio.Task[Pulled | None]]:
        """The transfer to MD beside RLD's stream; its result is None when it failed.

        It needs a lease of its own. When the answer is complete before the KV has arrived, the transfer goes on without
        the request: MD needs it for the session's next turn.
        """
        record = run.record

        async def pull() -> Pulled | None:
            try:
                with metrics.IN_FLIGHT.track_inprogress():
                    pulled = await self._pull(run, work, prefilled, site)
                _note_transfer(pulled, prefilled, work, record)
                return pulled
            except ApiError as error:
                record.trouble.append(f"transfer: {error.message}")
                return None

        task = asyncio.create_task(pull(), name=f"transfer {record.request_id}")
        try:
            yield task
        except BaseException:
            if not run.enough.is_set():
                task.cancel()
            raise
        finally:
            if not task.done():
                self._finishing.add(task)
                task.add_done_callback(self._finishing.discard)

    async def _pull(self, run: _Run, work: Work, prefilled: Prefilled, site: Site) -> Pulled:
        for last_try in (False, True):
            async with self._leases.again(prefilled, work, run.ask.headers) as leased:
                run.record.pull_began = run.record.now()
                lease = leased.hand_over(site)
                try:
                    pulled = await site.pull(work, lease, reads=prefilled.reads, headers=run.ask.headers)
                except LeaseTooOldError:
                    if last_try:
                        raise
                    run.record.trouble.append("lease too old for a pull, leased anew")
                else:
                    leased.read()
                    return pulled
        raise AssertionError("unreachable: the last try returns or raises")


async def _until(
    stream: AsyncGenerator[Delta, None],
    stop: asyncio.Task[Pulled | None],
    record: Record,
    *,
    cut_at: int | None,
) -> AsyncGenerator[Delta, None]:
    """RLD's deltas until MD has the KV; all of them when the transfer failed. With `cut_at`, exactly that many tokens
    whatever the transfer does."""
    step: asyncio.Task[Delta] | None = None
    left = cut_at
    try:
        while left is None or left > 0:
            step = step or asyncio.ensure_future(anext(stream))
            if left is not None or (stop.done() and stop.result() is None):
                await asyncio.wait({step})
            elif not stop.done():
                await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
            if step.done():
                delta = step.result()
                step = None
                if left is not None:
                    delta = delta.first(left)
                    left -= len(delta.token_ids)
                yield delta
            if left is None and stop.done() and stop.result() is not None:
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


def _note_transfer(pulled: Pulled, prefilled: Prefilled, work: Work, record: Record) -> None:
    facts = prefilled.engine.facts
    size = kv_bytes(
        max(0, len(work.token_ids) - pulled.cached_tokens),
        kv_bytes_per_token=facts.kv_bytes_per_token,
        block_size=facts.block_size,
    )
    record.transferred(pulled.engine, pulled.cached_tokens, pulled.seconds, size)
    # Counted here and not at the request's end, which a transfer may outlive.
    metrics.CACHED_TOKENS.labels("main-decode").inc(pulled.cached_tokens)
    metrics.LINE_BYTES.inc(size)
