"""Turns: who waits, who is told, and what is left behind."""

import asyncio
from collections.abc import Iterator
from time import monotonic

import pytest

from pdd_router import metrics, timeouts
from pdd_router.errors import OverloadedError, UpstreamError
from pdd_router.line.round_trip import RoundTrips
from pdd_router.line.schedule import Place, Schedule
from pdd_router.policy.order import Urgency

RATE = 1000.0
LARGE = 400.0
"""A piece: nothing larger than 100 fits in beside it."""


def gauges() -> tuple[float, float]:
    return metrics.TRANSFERS_WAITING._value.get(), metrics.IN_FLIGHT._value.get()


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    before = gauges()
    made = Schedule("site-b", RATE, RoundTrips())
    yield made
    assert len(made) == 0
    assert gauges() == before


def ask(schedule: Schedule, size: float, urgency: Urgency = Urgency.USER_WAITS) -> tuple[Place, "asyncio.Task[bool]"]:
    place = schedule.ask("p-0", size, urgency)
    return place, asyncio.create_task(place.turn(size, left=size, until=monotonic() + 60))


async def test_the_smallest_is_next_and_the_user_before_nobody(schedule: Schedule) -> None:
    turns: list[str] = []

    async def go(name: str, size: float, urgency: Urgency) -> None:
        place, turn = ask(schedule, size, urgency)
        assert await turn
        turns.append(name)
        await asyncio.sleep(0)
        place.arrived(size, 0.0)
        place.close()

    await asyncio.gather(
        go("first", LARGE, Urgency.USER_READS),
        go("for nobody", 300.0, Urgency.NOBODY_WAITS),
        go("large", 390.0, Urgency.USER_WAITS),
        go("small", 380.0, Urgency.USER_WAITS),
        go("read", 350.0, Urgency.USER_READS),
    )
    assert turns == ["first", "small", "large", "read", "for nobody"]


async def test_one_that_leaves_makes_room(schedule: Schedule) -> None:
    first, turn = ask(schedule, LARGE)
    assert await turn
    second, waiting = ask(schedule, LARGE)
    third, other = ask(schedule, LARGE)
    await asyncio.sleep(0)
    waiting.cancel()
    second.close()
    assert len(schedule) == 2
    first.close()  # in the middle of its transfer
    assert await other
    third.close()
    third.close()


async def test_a_wait_that_is_too_long_for_its_lease_keeps_the_place(schedule: Schedule) -> None:
    first, turn = ask(schedule, LARGE)
    await turn
    second = schedule.ask("p-0", 200.0, Urgency.USER_WAITS)
    assert not await second.turn(200.0, left=200.0, until=monotonic() + 0.01)
    third, later = ask(schedule, 300.0)
    await asyncio.sleep(0)
    first.close()
    assert await second.turn(200.0, left=200.0, until=monotonic())  # it came between the two
    assert not later.done() or await later
    second.close()
    assert await later
    third.close()


async def test_a_silent_site_is_told_to_all_that_wait_and_begins_small(schedule: Schedule) -> None:
    first, turn = ask(schedule, LARGE)
    await turn
    second, waiting = ask(schedule, LARGE)
    await asyncio.sleep(0)
    assert schedule.cut_off() == 1
    with pytest.raises(UpstreamError, match="site-b"):
        await waiting
    second.close()
    first.close()
    asked = [ask(schedule, 1.0) for _ in range(20)]
    under_way = []
    while asked:
        await asyncio.sleep(0.01)
        begun = [place for place, turn in asked if turn.done()]
        under_way.append(len(begun))
        for place in begun:
            place.arrived(1.0, 0.0)
            place.close()
            if len(under_way) == 1:
                break
        asked = [(place, turn) for place, turn in asked if place not in begun]
    assert under_way[:3] == [1, 2, 8]  # two more after one, then 2 x 2 x 2
    assert sum(under_way) == 20


async def test_who_waits_without_end_is_told_for_what(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "LINE_SECONDS", 0.02)
    first, turn = ask(schedule, LARGE)
    await turn
    second, waiting = ask(schedule, 2e6)
    with pytest.raises(OverloadedError, match="line to site-b had no room for 2 MB"):
        await waiting
    second.close()
    first.close()


async def test_what_is_ahead_is_what_goes_before(schedule: Schedule) -> None:
    first, turn = ask(schedule, LARGE)
    await turn
    large, _ = ask(schedule, 5 * LARGE)
    nobody, _ = ask(schedule, 100.1, Urgency.NOBODY_WAITS)
    await asyncio.sleep(0)
    ahead = schedule.seconds_ahead(200.0, Urgency.USER_WAITS)
    assert 0 < ahead <= LARGE / RATE
    assert schedule.seconds_ahead(6 * LARGE, Urgency.USER_WAITS) == pytest.approx(ahead + 5 * LARGE / RATE, abs=0.1)
    assert schedule.seconds_ahead(200.0, Urgency.NOBODY_WAITS) == pytest.approx(
        ahead + (5 * LARGE + 100.1) / RATE, abs=0.1
    )
    for place in (first, large, nobody):
        place.close()


async def test_whose_answer_is_complete_waits_behind_the_others(schedule: Schedule) -> None:
    first, turn = ask(schedule, LARGE)
    await turn
    second, one = ask(schedule, 300.0, Urgency.USER_READS)
    third, other = ask(schedule, 350.0, Urgency.USER_READS)
    await asyncio.sleep(0)
    second.urgency(Urgency.NOBODY_WAITS)
    first.close()
    assert await other
    assert not one.done()
    third.close()
    assert await one
    second.close()
