"""Transfers to one site take their turns: policy/order.py decides, here they wait.

place = schedule.ask(way, size, urgency)                # from here on it has a place in the order
while not await place.turn(amount, left=..., until=...):  # False: not yet; see to the lease
    ...
...                                                     # the bytes cross the line
place.arrived(amount, seconds)                          # the next one may go
place.close()                                           # whatever happened
"""

import asyncio
from collections.abc import Hashable
from time import monotonic

from prometheus_client import Gauge

from pdd_router import metrics, timeouts
from pdd_router.errors import OverloadedError, UpstreamError
from pdd_router.line.round_trip import RoundTrips
from pdd_router.policy.delivery import Delivery
from pdd_router.policy.order import Job, Order, Urgency

# What is on its way to an MD cannot be overtaken (NIXL reads in order), so a user who comes waits for at most this.
_WINDOW_SECONDS = 0.5

# Small transfers take a round trip and a step of MD each, whatever their size: enough of them to fill a line beside it.
_MOST_AT_ONCE = 16


class Place:
    """Of one transfer, which goes in one piece or in several."""

    def __init__(self, schedule: "Schedule", job: Job):
        self._schedule = schedule
        self._job = job
        self._turn: asyncio.Future[None] | None = None
        self._turn_asked = 0.0
        self._piece_began = 0.0
        self._mark = 0.0
        self._counted: Gauge | None = None
        self._count(metrics.TRANSFERS_WAITING)
        self.asked = monotonic()
        self.began: float | None = None
        """When its first turn came."""

    async def turn(self, amount: float, *, left: float, until: float) -> bool:
        """Waits until `amount` of the bytes that are `left` may go; False when that is not yet so at `until`. The place
        is kept then, and so is a turn that was asked for before and is not over.

        Raises UpstreamError when the site is cut off, OverloadedError after timeouts.LINE_SECONDS.
        """
        turn = self._turn
        if turn is None:
            turn = self._ask(amount, left)
            self._schedule.go()
        give_up = self._turn_asked + timeouts.LINE_SECONDS
        await asyncio.wait({turn}, timeout=max(0.0, min(until, give_up) - monotonic()))
        if turn.done():
            turn.result()
            return True
        if monotonic() >= give_up:
            what = f"the line to {self._schedule.site} had no room for {left / 1e6:.0f} MB of KV cache"
            raise OverloadedError(f"{what} in {timeouts.LINE_SECONDS:.0f} s; see the conditions of the WANLink")
        return False

    def urgency(self, urgency: Urgency) -> None:
        """It is another now."""
        self._job.urgency = urgency

    def came(self, now: float) -> None:
        """Its turn."""
        self._mark = self._schedule.delivery.began(now)
        self._piece_began = now
        if self.began is None:
            self.began = now
        self._count(metrics.IN_FLIGHT)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def arrived(self, amount: float, seconds: float, *, then: float = 0.0, left: float = 0.0) -> None:
        """The turn is over: `amount` bytes are there, `seconds` after MD began (main may have let it wait for room).

        The next turn is for `then` of the bytes that are `left`, and is asked for before anyone else gets this one's:
        later, something longer would have begun in between.
        """
        now = monotonic()
        took = now - self._piece_began
        own = self._schedule.delivery.ended(self._mark, now)
        self._schedule.delivered(amount, seconds=took, own_seconds=own * min(1.0, seconds / took) if took else 0.0)
        self._turn = None
        self._count(metrics.TRANSFERS_WAITING)
        self._schedule.order.end(self._job, done=True)
        if then:
            self._ask(then, left)
        self._schedule.go()

    def left(self, now: float) -> float:
        """Bytes of the piece that is under way which are probably not there yet."""
        return max(0.0, self._job.amount - self._schedule.delivery.progress(self._mark, now))

    def fail(self, error: Exception) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(error)

    def close(self) -> None:
        """Gives turn and place back. A second time does nothing."""
        if self._counted is metrics.IN_FLIGHT:
            self._schedule.delivery.ended(self._mark, monotonic())
        if self._turn is not None and not self._turn.cancel() and not self._turn.cancelled():
            self._turn.exception()  # whoever would have heard it has left
        self._turn = None
        self._count(None)
        self._schedule.leave(self._job)

    def _ask(self, amount: float, left: float) -> "asyncio.Future[None]":
        self._turn = asyncio.get_running_loop().create_future()
        self._turn_asked = monotonic()
        self._schedule.order.wait(self._job, amount, remaining=left)
        return self._turn

    def _count(self, gauge: Gauge | None) -> None:
        if self._counted is not None:
            self._counted.dec()
        self._counted = gauge
        if gauge is not None:
            gauge.inc()


class Schedule:
    """Of one site. Bytes, and seconds of the monotonic clock."""

    def __init__(self, site: str, bytes_per_second: float, round_trips: RoundTrips):
        self.site = site
        self.delivery = Delivery(bytes_per_second)
        self._round_trips = round_trips
        self.order = Order(window_seconds=_WINDOW_SECONDS, most=_MOST_AT_ONCE)
        self._places: dict[Job, Place] = {}
        metrics.LINE_RATE.labels(site).set(bytes_per_second)

    def __len__(self) -> int:
        """Transfers that wait or are under way."""
        return len(self._places)

    @property
    def rate(self) -> float:
        """Bytes a second, as measured."""
        return self.delivery.rate

    @property
    def piece(self) -> float:
        """Bytes that a larger transfer is best cut into."""
        return self.order.piece(self.rate)

    def seconds_ahead(self, size: float, urgency: Urgency) -> float:
        """For how long the line is busy with what would go before a transfer that is asked for now."""
        now = monotonic()
        left = sum(self._places[job].left(now) for job in self.order.under_way)
        return (left + self.order.ahead(size, urgency, now)) / self.rate

    def ask(self, way: Hashable, size: float, urgency: Urgency) -> Place:
        """`way`: what can carry one thing after the other only, a P engine and this site."""
        job = Job(way, size, urgency, asked=monotonic(), alone_seconds=size / self.rate)
        place = self._places[job] = Place(self, job)
        return place

    def cut_off(self) -> int:
        """The site is silent. Whoever waits hears so, and how many that were is returned; when the site is back,
        transfers begin one at a time."""
        self.order.begin_small()
        waiting = self.order.waiting
        for job in waiting:
            self.order.end(job)
            self._places[job].fail(UpstreamError(self.site, "does not answer any more", took_it=False))
        return len(waiting)

    def delivered(self, amount: float, *, seconds: float, own_seconds: float) -> None:
        round_trip = self._round_trips.percentile(50) or 0.0
        self.delivery.delivered(amount, own_seconds=own_seconds, seconds=seconds, round_trip_seconds=round_trip)
        metrics.LINE_RATE.labels(self.site).set(self.rate)

    def leave(self, job: Job) -> None:
        self._places.pop(job, None)
        self.order.end(job)
        self.go()

    def go(self) -> None:
        now = monotonic()
        for job in self.order.start(now, self.rate):
            self._places[job].came(now)
