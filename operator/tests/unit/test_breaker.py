"""The circuit breaker, step by step."""

from pdd_operator.clusters.breaker import Breaker


def test_opens_after_failures_in_a_row_and_closes_with_an_answer() -> None:
    breaker = Breaker(failures=2, pause=5)
    breaker.failed(0)
    assert breaker.allows(0)
    breaker.failed(1)
    assert not breaker.allows(2)
    breaker.succeeded()
    assert breaker.allows(2)


def test_one_trial_for_each_pause_and_longer_pauses() -> None:
    breaker = Breaker(failures=1, pause=5, longest_pause=12)
    allowed = []
    for now in range(60):
        if breaker.allows(now):
            allowed.append(now)
            breaker.failed(now)
    assert allowed == [0, 5, 15, 27, 39, 51]


def test_only_the_first_who_asks_after_the_pause_may_try() -> None:
    breaker = Breaker(failures=1, pause=5)
    breaker.failed(0)
    assert breaker.allows(5)
    assert not breaker.allows(5)
