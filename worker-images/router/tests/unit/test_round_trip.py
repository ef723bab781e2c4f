from pdd_router.line.round_trip import UNREACHABLE_AFTER_SECONDS, WINDOW, RoundTrips


def test_percentiles_are_ranks_of_the_last_minute() -> None:
    trips = RoundTrips()
    assert trips.percentile(50) is None
    for n in range(WINDOW + 40):
        trips.answered(n / 1000, now=float(n))
    assert len(trips) == WINDOW
    assert trips.percentile(50) == 0.069
    assert trips.percentile(99) == 0.099


def test_silence_makes_a_site_unreachable() -> None:
    trips = RoundTrips()
    assert not trips.reachable(0.0)
    trips.answered(0.02, now=10.0)
    assert trips.reachable(10.0 + UNREACHABLE_AFTER_SECONDS - 0.1)
    assert not trips.reachable(10.0 + UNREACHABLE_AFTER_SECONDS)
    assert trips.age(12.0) == 2.0
