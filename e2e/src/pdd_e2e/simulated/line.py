"""A line on paper: when transfers arrive under three disciplines, computed and not waited for.

The sizes are those of real coding agents, because everything depends on their skew: 2 % of the requests carry more
than half of the bytes.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pdd_router.policy.order import Job, Order, Urgency

# Tokens that an endless prefix cache lacks, at these shares of the requests; 31,277 requests of the sessions of
# callanjfox/kv-cache-tester (Apache License 2.0). In between: straight lines.
_SHARES = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99,
           0.995, 1)  # fmt: skip
_MISSED = (64, 139, 186, 226, 320, 420, 540, 712, 954, 1395, 2208, 3060, 4861, 6457, 8761, 11198, 15062, 19442, 34031,
           89638, 134460, 200000)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    at: float
    size: float
    way: int = 0


def skewed_tokens(random: Random) -> float:
    share = random.random()
    upper = min(bisect(_SHARES, share), len(_SHARES) - 1)
    low, high = _SHARES[upper - 1], _SHARES[upper]
    return _MISSED[upper - 1] + (_MISSED[upper] - _MISSED[upper - 1]) * (share - low) / (high - low)


def skewed(count: int, *, load: float, rate: float, bytes_per_token: float, ways: int, seed: int) -> list[Asked]:
    """Requests that come by chance and keep a line of `rate` bytes/s busy for `load` of the time."""
    random = Random(seed)
    sizes = [skewed_tokens(random) * bytes_per_token for _ in range(count)]
    at, asked = 0.0, []
    for size in sizes:
        at += random.expovariate(load * rate / (sum(sizes) / count))
        asked.append(Asked(at, size, random.randrange(ways)))
    return asked


def first_come(asked: Sequence[Asked], rate: float) -> list[float]:
    """Seconds from asked to there, in the order of `asked`."""
    free, seconds = 0.0, []
    for each in asked:
        free = max(free, each.at) + each.size / rate
        seconds.append(free - each.at)
    return seconds


def shared(asked: Sequence[Asked], rate: float) -> list[float]:
    """All at once, each with an equal share."""
    return _run(asked, rate, 0.0, None)


def ordered(asked: Sequence[Asked], rate: float, *, order: Order, latency: float, cut: bool = True) -> list[float]:
    """As the router does it: on each way one after the other, the ways share the line. `latency`: what each turn takes
    before its bytes flow."""
    return _run(asked, rate, latency, order, cut=cut)


@dataclass(eq=False)
class _Moving:
    number: int
    job: Job
    left: float
    flows_at: float


def _run(asked: Sequence[Asked], rate: float, latency: float, order: Order | None, *, cut: bool = True) -> list[float]:
    now, moving = 0.0, list[_Moving]()
    numbers: dict[Job, int] = {}
    seconds = [0.0] * len(asked)
    coming = _arrivals(asked)
    number = next(coming)
    while number is not None or moving:
        heads = list({each.job.way if order else each.number: each for each in reversed(moving)}.values())
        flowing = [each for each in heads if each.flows_at <= now]
        share = rate / len(flowing) if flowing else 0.0
        until = [each.flows_at for each in heads if each.flows_at > now]
        until += [now + each.left / share for each in flowing]
        until += [asked[number].at] if number is not None else []
        passed = max(0.0, min(until) - now)
        for each in flowing:
            each.left -= share * passed
        now += passed
        for each in [each for each in flowing if each.left <= 1e-6 * rate]:
            moving.remove(each)
            left = each.job.remaining - each.job.amount
            if order is not None:
                order.end(each.job, done=True)
            if left > 0 and order is not None:
                order.wait(each.job, min(left, order.piece(rate)), remaining=left)
            else:
                seconds[each.number] = now - asked[each.number].at
        while number is not None and asked[number].at <= now:
            size = asked[number].size
            job = Job(asked[number].way, size, Urgency.USER_WAITS, asked=now, alone_seconds=size / rate)
            numbers[job] = number
            if order is None:
                job.amount = size
                moving.append(_Moving(number, job, size, now))
            else:
                order.wait(job, min(size, order.piece(rate)) if cut else size, remaining=size)
            number = next(coming)
        if order is not None:
            moving += [_Moving(numbers[job], job, job.amount, now + latency) for job in order.start(now, rate)]
    return seconds


def _arrivals(asked: Sequence[Asked]) -> Iterator[int | None]:
    yield from range(len(asked))
    while True:
        yield None


def percentile(seconds: Sequence[float], p: float) -> float:
    ranked = sorted(seconds)
    return ranked[min(len(ranked) - 1, int(p / 100 * len(ranked)))]
