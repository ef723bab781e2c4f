"""In which order work goes over something that is shared: shortest remaining first, and nobody starves.

Work has an amount (bytes on a line, tokens at a prefill engine) and goes one of several ways (a pair of engines), of
which each does one thing after the other. What does not fit into a piece goes piece by piece, and between two of its
pieces shorter work passes it: so the order is by what *remains*, not only by what was asked for.

Rank: of two that wait, the more urgent one goes first; of equally urgent ones, the one with less left to do. Work that
has waited until it is *due* goes before all that is not, and among such the one that is due first. Due is

    asked + patience of its urgency + SLOWDOWN * amount / rate

so short work is due soon, long work late, and under an overload of hours the order is still one that short work likes.

Bounds: what is under way is at most `window_seconds` of the rate, and at most `most` pieces. More would only stand in
front of what comes next. `piece` is a little less than that, so that something short still fits in beside a piece. What
cannot be cut and is larger goes alone on its way, and leaves as much room on the others as a piece does.

Nobody starves. Let work be due at D (or asked for a turn at D, if it was due before). From D on nothing starts that was
asked for after D, until it has its turn:

    wait until the turn  <=  (D - asked) + U / R

with U the amount that was asked for before D and has not been done by D, R the rate at which what is under way is done.
(tests/property/test_order_property.py has this as a property.) The price: from D on it may be the only one whose way is
busy, and other ways stay empty until that is over.

One order is one deployment's: a front router knows its own transfers only, and several PDDDeployments on one line
share it as TCP does.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum


class Urgency(IntEnum):
    """Who waits for it."""

    USER_WAITS = 0
    """A user who has not seen a token."""
    USER_READS = 1
    """A user who is being served from elsewhere, at a place that is scarcer."""
    NOBODY_WAITS = 2
    """It fills a cache for later."""


PATIENCE_SECONDS = {Urgency.USER_WAITS: 5.0, Urgency.USER_READS: 10.0, Urgency.NOBODY_WAITS: 60.0}
"""Nobody waits: the next turn of a session comes after some tens of seconds (the agentic traces)."""

SLOWDOWN = 10.0
"""Work may take so many times as long as alone before it is due. At 70 % load shortest-first alone lets hardly any wait
that long, so ageing costs the short ones nothing; with 2 it would cost them most of the gain."""

_PIECE = 0.8
"""Of a window. Simulated on the agentic trace at 70 % load, 4 ways, p50 and p90 of completion in s: a whole window 0.23
and 0.65, four fifths 0.11 and 0.52, half 0.15 and 0.55 (more pieces, each of which costs its latency)."""


@dataclass(eq=False)
class Job:
    """Work on its way. `amount` is the piece that waits for its turn or is under way."""

    way: Hashable
    remaining: float
    urgency: Urgency
    asked: float
    alone_seconds: float
    amount: float = 0.0

    @property
    def due(self) -> float:
        return self.asked + PATIENCE_SECONDS[self.urgency] + SLOWDOWN * self.alone_seconds

    def rank(self, now: float) -> tuple[float, float, float]:
        """Of two that wait, the lower one goes first."""
        if self.due <= now:
            return -1.0, self.due, self.asked
        return float(self.urgency), self.remaining, self.asked


class Order:
    """Of all ways over one shared thing. Times are seconds of one clock, rates are amounts a second; `start` is to be
    asked after every other call."""

    def __init__(self, *, window_seconds: float, most: int):
        self._window_seconds = window_seconds
        self._most = most
        self._limit = most
        self._waiting: list[Job] = []
        self._under_way: list[Job] = []

    @property
    def waiting(self) -> tuple[Job, ...]:
        return tuple(self._waiting)

    @property
    def under_way(self) -> tuple[Job, ...]:
        return tuple(self._under_way)

    @property
    def limit(self) -> int:
        """How many pieces may be under way now."""
        return self._limit

    def piece(self, rate: float) -> float:
        """What work is best cut into."""
        return _PIECE * self._window_seconds * rate

    def wait(self, job: Job, amount: float, *, remaining: float) -> None:
        """Asks for a turn for `amount` of the `remaining` work."""
        job.amount, job.remaining = amount, remaining
        self._waiting.append(job)

    def start(self, now: float, rate: float) -> list[Job]:
        """Whose turn has come."""
        window, piece = self._window_seconds * rate, self.piece(rate)
        started: list[Job] = []
        held_up: set[Hashable] = set()
        for job in sorted(self._waiting, key=lambda each: each.rank(now)):
            if len(self._under_way) >= self._limit:
                break
            on_the_whole = sum(min(each.amount, piece) for each in self._under_way)
            if self._under_way and on_the_whole + min(job.amount, piece) > window:
                break  # a smaller one behind it would fit, and the next, and it never
            if job.way in held_up:
                continue
            on_its_way = sum(each.amount for each in self._under_way if each.way == job.way)
            if on_its_way and on_its_way + job.amount > window:
                if job.due <= now:
                    break
                held_up.add(job.way)
                continue
            self._waiting.remove(job)
            self._under_way.append(job)
            started.append(job)
        return started

    def end(self, job: Job, *, done: bool = False) -> None:
        """Its turn or its wait is over, if it had one; `done`: the piece is there."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job in self._under_way:
            self._under_way.remove(job)
        if done:
            self._limit = min(self._most, 2 * self._limit)

    def begin_small(self) -> None:
        """After an outage: one at a time at first, twice as many with each that is done."""
        self._limit = 1

    def ahead(self, remaining: float, urgency: Urgency, now: float) -> float:
        """How much would go before work that is asked for now, less what is under way."""

        def before(job: Job, left: float) -> bool:
            return job.due <= now or (job.urgency, left) <= (urgency, remaining)

        waiting = sum(job.remaining for job in self._waiting if before(job, job.remaining))
        later = ((job, job.remaining - job.amount) for job in self._under_way)
        return waiting + sum(left for job, left in later if left > 0 and before(job, left))
