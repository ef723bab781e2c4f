"""What the line delivers, as its transfers show it."""

import pytest

from pdd_router.policy.delivery import Delivery

DECLARED = 1000.0


def carry(delivery: Delivery, amount: float, seconds: float, *, now: float = 0.0) -> float:
    """One alone on the line. Returns when it ended."""
    mark = delivery.began(now)
    own = delivery.ended(mark, now + seconds)
    delivery.delivered(amount, own_seconds=own, seconds=seconds, round_trip_seconds=0.02)
    return now + seconds


@pytest.mark.parametrize("true_rate", [20.0, 300.0, 900.0])
def test_a_slower_line_is_found_out(true_rate: float) -> None:
    """Of which 20 is what cubic leaves of it with a packet lost in a thousand."""
    delivery, now = Delivery(DECLARED), 0.0
    for _ in range(30):
        now = carry(delivery, 400.0, 0.05 + 400.0 / true_rate, now=now)
    assert delivery.rate == pytest.approx(true_rate, rel=0.25)


def test_and_so_is_one_that_recovers() -> None:
    delivery, now = Delivery(DECLARED), 0.0
    for _ in range(30):
        now = carry(delivery, 400.0, 400.0 / 50.0, now=now)
    for _ in range(60):
        now = carry(delivery, 400.0, 0.4, now=now)
    assert delivery.rate > 0.75 * DECLARED


def test_it_never_claims_more_than_was_declared() -> None:
    delivery = Delivery(DECLARED)
    for _ in range(30):
        carry(delivery, 100_000.0, 0.5)
    assert delivery.rate == DECLARED


def test_small_transfers_say_little() -> None:
    """They take a step of MD, and a busy MD keeps some for longer: that is not the line."""
    delivery, now = Delivery(DECLARED), 0.0
    for number in range(1000):
        now = carry(delivery, 1.0, 1.0 if number % 10 == 0 else 0.1, now=now)
    assert delivery.rate > 0.7 * DECLARED


def test_those_at_once_share_the_line() -> None:
    """Two take twice as long, and the line is as fast as before."""
    delivery, now = Delivery(DECLARED), 0.0
    for _ in range(20):
        marks = [delivery.began(now), delivery.began(now)]
        now += 2.1
        for mark in marks:
            own = delivery.ended(mark, now)
            delivery.delivered(1000.0, own_seconds=own, seconds=2.1, round_trip_seconds=0.0)
    assert delivery.rate == pytest.approx(DECLARED, rel=0.05)


def test_another_declaration_is_believed_until_measured() -> None:
    delivery = Delivery(DECLARED)
    carry(delivery, 100.0, 50.0)
    slow = delivery.rate
    delivery.declared(DECLARED)
    assert delivery.rate == slow
    delivery.declared(5 * DECLARED)
    assert delivery.rate == 5 * DECLARED
