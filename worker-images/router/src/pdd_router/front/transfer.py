"""One prompt's KV cache from P to a site: in its turn, in pieces, each with a lease that is fresh.

KV that is longer than a piece (policy/order.py) goes prefix by prefix: P leases the first part of the prompt, MD pulls
it and keeps it in its prefix cache, and the next part needs only what is new. So something more urgent can go in
between, on stock engines. What counts is the last pull: it is of the whole prompt, and fetches whatever is missing.

P keeps the KV for as long as it waits: the lease on the whole prompt is taken anew when it gets too old. A P whose
memory is full of what waits for the line takes no new prompts, which is as it should be.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from time import monotonic

from pdd_router import metrics
from pdd_router.engines.client import Work
from pdd_router.errors import LeaseTooOldError
from pdd_router.front.leases import LeaseAhead, Leases, Prefilled
from pdd_router.front.record import Record
from pdd_router.line.site import Pulled, Site
from pdd_router.policy.order import Urgency
from pdd_router.policy.transfer import kv_bytes, pieces, transfer_seconds


@dataclass(frozen=True)
class Route:
    """The KV of `work`, prefilled at one engine, goes to one site."""

    prefilled: Prefilled
    work: Work
    site: Site
    headers: Mapping[str, str]
    cached: int
    """How much of it P had in its cache before the request came."""

    @property
    def tokens(self) -> int:
        return len(self.work.token_ids)

    def part(self, end: int) -> Work:
        return self.work if end == self.tokens else replace(self.work, token_ids=self.work.token_ids[:end])

    def bytes_between(self, there: int, end: int) -> int:
        facts = self.prefilled.engine.facts
        missing = max(0, end - there)
        return kv_bytes(missing, kv_bytes_per_token=facts.kv_bytes_per_token, block_size=facts.block_size)


class Transfer:
    """Has a place in the line's order from its beginning until it is closed or complete.

    `given` is a lease on the whole prompt that is there already, and stays its owner's to give back. Pieces are named
    by their `end`: the number of the prompt's tokens that MD holds with them.
    """

    def __init__(
        self, leases: Leases, route: Route, record: Record, urgency: Urgency, *, given: Prefilled | None = None
    ):
        self._leases = leases
        self._route = route
        self._record = record
        ids, site = route.work.token_ids, route.site
        self._there = site.held.tokens(ids, cached_at_prefill=route.cached)
        self._there = min(self._there, route.tokens - 1)  # the last block is sent always
        self._on_its_way = site.held.on_its_way(ids)
        self._predicted = site.schedule.seconds_ahead(self._left, urgency) + transfer_seconds(
            self._left,
            bits_per_second=site.schedule.rate * 8,
            round_trip_seconds=site.round_trips.percentile(50) or 0.0,
        )
        self._place = site.schedule.ask(route.prefilled.engine.name, self._left, urgency)
        self._whole = given
        self._renewed = AsyncExitStack()
        self._ahead: tuple[int, LeaseAhead] | None = None
        self._hit: int | None = None
        self._bytes = 0

    async def __aenter__(self) -> "Transfer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self._ahead is not None:
            await self._ahead[1].close()
        await self._renewed.aclose()

    def close(self) -> None:
        """Gives the place back. For a task that was ended before it began; else leaving the context does it."""
        self._on_its_way.close()
        self._place.close()

    def urgency(self, urgency: Urgency) -> None:
        """It is another now."""
        self._place.urgency(urgency)

    async def pull(self) -> Pulled:
        """All of it. Raises ApiError."""
        await self.pieces()
        return await self._pull(self._route.tokens)

    async def pieces(self) -> None:
        """All but the last, for which the caller takes the `turn`. Raises ApiError."""
        while (end := self._next_end()) < self._route.tokens:
            await self._pull(end)
            # Another transfer may have brought the same prefix meanwhile.
            self._there = max(self._there, self._route.site.held.sent(self._route.work.token_ids))
            self._there = min(self._there, self._route.tokens - 1)
            if self._ahead is not None and self._ahead[0] <= self._there:
                (_, ahead), self._ahead = self._ahead, None
                await ahead.close()

    @asynccontextmanager
    async def turn(self, end: int | None = None) -> AsyncIterator[Prefilled]:
        """The lease on the prompt up to `end` (none: all of it) when what of it is not there yet may go."""
        end = end or self._route.tokens
        amount = self._route.bytes_between(self._there, end)
        while True:
            async with self._lease_on(end) as lease:
                if not await self._place.turn(amount, left=self._left, until=lease.fresh_until):
                    continue
                if self._record.pull_began is None:
                    self._record.pull_began = self._record.now()
                try:
                    yield lease
                except LeaseTooOldError:
                    self._whole = None
                    raise
                return

    def arrived(self, pulled: Pulled, end: int | None = None) -> None:
        """The prompt's KV up to `end` (none: all of it) is at MD."""
        route, end = self._route, end or self._route.tokens
        whole = end == route.tokens
        moved = route.bytes_between(pulled.cached_tokens, end)
        self._bytes += moved
        if self._hit is None and (whole or moved > route.bytes_between(end - 1, end)):
            # What it held before anything was sent: of a piece that it held it lacks the last block only.
            self._hit = pulled.cached_tokens
        self._there = max(self._there, min(end, route.tokens - 1))
        route.site.held.now(route.part(end).token_ids, pulled.engine)
        if whole:
            self._complete(pulled)
        elif (following := self._next_end()) == route.tokens or (self._ahead is not None and self._ahead[1].ready):
            then = route.bytes_between(self._there, following)
            self._place.arrived(moved, pulled.seconds, then=then, left=self._left)
        else:
            self._place.arrived(moved, pulled.seconds)

    @property
    def _left(self) -> int:
        return self._route.bytes_between(self._there, self._route.tokens)

    def _next_end(self, after: int | None = None) -> int:
        there = self._there if after is None else after
        if self._ahead is not None and self._ahead[0] > there:
            return self._ahead[0]
        facts = self._route.prefilled.engine.facts
        return pieces(
            self._route.tokens,
            held=there,
            piece_tokens=int(self._route.site.schedule.piece / facts.kv_bytes_per_token),
            block_size=facts.block_size,
        )[0]

    async def _pull(self, end: int) -> Pulled:
        try:
            return await self._pull_once(end)
        except LeaseTooOldError:
            self._record.trouble.append("lease too old for a pull, leased anew")
            return await self._pull_once(end)

    async def _pull_once(self, end: int) -> Pulled:
        route, part = self._route, self._route.part(end)
        async with self.turn(end) as lease:
            self._lease_ahead(end)
            reads = route.prefilled.reads
            pulled = await route.site.pull(part, lease.hand_over(route.site), reads=reads, headers=route.headers)
            lease.read()
            self.arrived(pulled, end)
        return pulled

    @asynccontextmanager
    async def _lease_on(self, end: int) -> AsyncIterator[Prefilled]:
        whole = await self._fresh()
        if end == self._route.tokens:
            yield whole
            return
        if self._ahead is not None and self._ahead[0] == end:
            (_, ahead), self._ahead = self._ahead, None
            async with ahead as lease:
                yield lease
            return
        async with self._leases.again(whole, self._route.part(end), self._route.headers) as lease:
            yield lease

    def _lease_ahead(self, end: int) -> None:
        """While a piece is on its way the lease for the next one is taken: the line does not wait for P."""
        following = self._next_end(after=end) if end < self._route.tokens else end
        if following < self._route.tokens and self._ahead is None:
            taking = self._leases.again(self._route.prefilled, self._route.part(following), self._route.headers)
            self._ahead = following, LeaseAhead(taking)

    async def _fresh(self) -> Prefilled:
        """A lease on the whole prompt that is not about to be too old."""
        if self._whole is None or monotonic() >= self._whole.fresh_until:
            await self._renewed.aclose()
            again = self._leases.again(self._route.prefilled, self._route.work, self._route.headers)
            self._whole = await self._renewed.enter_async_context(again)
        return self._whole

    def _complete(self, pulled: Pulled) -> None:
        place, hit, now = self._place, self._hit or 0, monotonic()
        place.arrived(self._route.bytes_between(pulled.cached_tokens, self._route.tokens), pulled.seconds)
        began = place.began or now
        waited, seconds = began - place.asked, now - began
        self.close()
        self._record.transferred(pulled.engine, hit, seconds=seconds, waited=waited, line_bytes=self._bytes)
        # Counted here and not at the request's end, which a transfer may outlive.
        metrics.CACHED_TOKENS.labels("main-decode").inc(hit)
        metrics.LINE_BYTES.inc(self._bytes)
        metrics.PREDICTION.observe((waited + seconds) / self._predicted)
