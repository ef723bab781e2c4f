"""The order's promises, on anything that may happen to it and on a line that carries what it lets go."""

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pdd_e2e.simulated.line import Asked, first_come, ordered, percentile, shared, skewed
from pdd_router.policy.order import PATIENCE_SECONDS, SLOWDOWN, Job, Order, Urgency

RATE = 100.0
WINDOW = 0.5
MOST = 4

amounts = st.floats(1, 5 * RATE)
jobs = st.tuples(st.integers(0, 2), amounts, st.sampled_from(Urgency))


def an_order() -> Order:
    return Order(window_seconds=WINDOW, most=MOST)


def a_job(way: int, size: float, urgency: Urgency, now: float) -> Job:
    return Job(way, size, urgency, asked=now, alone_seconds=size / RATE)


def check_bounds(order: Order) -> None:
    window, piece = WINDOW * RATE, order.piece(RATE)
    moving = order.under_way
    assert len(moving) <= MOST
    assert len(moving) == 1 or sum(min(job.amount, piece) for job in moving) <= window + 1e-6
    for way in {job.way for job in moving}:
        on_it = [job.amount for job in moving if job.way == way]
        assert len(on_it) == 1 or sum(on_it) <= window + 1e-6


@given(st.lists(st.one_of(jobs, st.integers(0, 20), st.just("outage")), max_size=60))
def test_bounds_hold_and_nothing_idles_whatever_happens(steps: list[object]) -> None:
    """A job comes, or one of those that are there leaves: done or cancelled, waiting or under way."""
    order, there, now = an_order(), list[Job](), 0.0
    for step in steps:
        now += 0.1
        if step == "outage":
            order.begin_small()
        elif isinstance(step, int):
            if there:
                order.end(there.pop(step % len(there)), done=step % 2 == 0)
        else:
            way, size, urgency = step  # type: ignore[misc]
            there.append(a_job(way, size, urgency, now))
            order.wait(there[-1], size, remaining=size)
        order.start(now, RATE)
        assert set(order.waiting) | set(order.under_way) == set(there)
        check_bounds(order)
        if order.waiting:
            assert order.under_way
            first = min(order.waiting, key=lambda job: job.rank(now))
            piece, window = order.piece(RATE), WINDOW * RATE
            on_the_whole = sum(min(job.amount, piece) for job in order.under_way) + min(first.amount, piece)
            on_its_way = [job.amount for job in order.under_way if job.way == first.way]
            fits_its_way = not on_its_way or sum(on_its_way) + first.amount <= window
            assert len(order.under_way) >= order.limit or on_the_whole > window or not fits_its_way
    for job in there:
        order.end(job)
    assert not order.waiting
    assert not order.under_way
    order.wait(last := a_job(0, 1.0, Urgency.NOBODY_WAITS, now), 1.0, remaining=1.0)
    assert order.start(now, RATE) == [last]


@dataclass
class Line:
    """Carries what is under way at RATE in all, the last that began first: the worst for who waits behind another."""

    order: Order = field(default_factory=an_order)
    now: float = 0.0
    left: dict[Job, float] = field(default_factory=dict)
    began: dict[Job, float] = field(default_factory=dict)

    def come(self, job: Job) -> None:
        self.left[job] = job.remaining
        self.order.wait(job, job.remaining, remaining=job.remaining)
        self._start()

    def run_until(self, moment: float) -> None:
        while self.order.under_way:
            job = self.order.under_way[-1]
            done = self.now + self.left[job] / RATE
            if done > moment:
                self.left[job] -= (moment - self.now) * RATE
                break
            self.now = done
            del self.left[job]
            self.order.end(job, done=True)
            self._start()
        self.now = moment

    def _start(self) -> None:
        for job in self.order.start(self.now, RATE):
            self.began[job] = self.now


# (way, size, urgency, seconds from one to the next): jobs that keep coming, more than the line carries if they like.
streams = st.tuples(st.integers(0, 2), st.floats(1, RATE / 2), st.sampled_from(Urgency), st.floats(0.2, 1))


@given(
    there=st.lists(jobs, max_size=6),
    mine=st.tuples(st.integers(0, 2), st.floats(1, RATE), st.sampled_from([Urgency.USER_WAITS, Urgency.USER_READS])),
    later=st.lists(streams, min_size=1, max_size=3),
)
@example(  # it is too large for its way beside a little one, and another way never rests
    there=[(0, 5.0, Urgency.USER_WAITS), (1, 45.0, Urgency.USER_WAITS)],
    mine=(0, 60.0, Urgency.USER_WAITS),
    later=[(1, 25.0, Urgency.USER_WAITS, 0.2)],
)
def test_nobody_starves(
    there: list[tuple[int, float, Urgency]],
    mine: tuple[int, float, Urgency],
    later: list[tuple[int, float, Urgency, float]],
) -> None:
    """Whatever keeps coming: it has its turn when what was asked for until it was due is done."""
    line = Line()
    for each in there:
        line.come(a_job(*each, now=0.0))
    job = a_job(*mine, now=0.0)
    line.come(job)
    coming = sorted((n * pause, way, size, urgency) for way, size, urgency, pause in later for n in range(1, 150))
    unfinished = None
    for at, way, size, urgency in coming:
        if unfinished is None and at > job.due:
            line.run_until(job.due)
            unfinished = sum(line.left.values()) - line.left.get(job, 0.0)
        line.run_until(at)
        if job in line.began:
            break
        line.come(a_job(way, size, urgency, at))
    assert job.due == pytest.approx(PATIENCE_SECONDS[mine[2]] + SLOWDOWN * mine[1] / RATE)
    line.run_until(1e6)
    assert line.began[job] <= job.due + (unfinished or 0.0) / RATE + 1e-6


@given(
    sizes=st.lists(st.floats(0.1, 500), min_size=1, max_size=40),
    ways_and_cut=st.sampled_from([(1, False), (1, True), (2, True), (3, True)]),
)
def test_of_what_is_asked_for_at_once_each_is_there_no_later_than_its_like_in_the_order_of_asking(
    sizes: list[float], ways_and_cut: tuple[int, bool]
) -> None:
    """The n-th to arrive, for every n: so at every percentile. On one way; several share the line for a window."""
    ways, cut = ways_and_cut
    asked = [Asked(0.0, size, number % ways) for number, size in enumerate(sizes)]
    ours = sorted(ordered(asked, RATE, order=an_order(), latency=0.0, cut=cut))
    for mine, other in zip(ours, sorted(first_come(asked, RATE)), strict=True):
        assert mine <= other + 1e-4 + (WINDOW if ways > 1 else 0.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("ways", [1, 4])
def test_on_the_skewed_load_it_is_worth_what_pdd_lives_on(seed: int, ways: int) -> None:
    """10 Gb/s, 46.5 KB a token, 70 % load, each turn 50 ms late. First come, first served lets one in ten wait for more
    than ten times as long; processor sharing, which no two engines can do between them, is about as good."""
    rate = 1.25e9
    asked = skewed(4000, load=0.7, rate=rate, bytes_per_token=46_500, ways=ways, seed=seed)
    ours = ordered(asked, rate, order=Order(window_seconds=WINDOW, most=16), latency=0.05)
    first, equal = first_come(asked, rate), shared(asked, rate)
    assert percentile(ours, 50) < percentile(first, 50)
    assert percentile(ours, 90) < percentile(first, 90) / 5
    assert percentile(ours, 90) < 1.2 * percentile(equal, 90)
    assert percentile(ours, 99) < percentile(first, 99)


def test_without_pieces_the_short_ones_wait_for_the_long_one() -> None:
    rate = 1.25e9
    asked = skewed(4000, load=0.7, rate=rate, bytes_per_token=46_500, ways=1, seed=1)
    whole, cut = (
        ordered(asked, rate, order=Order(window_seconds=WINDOW, most=16), latency=0.05, cut=cut)
        for cut in (False, True)
    )
    assert percentile(whole, 90) > 3 * percentile(cut, 90)
