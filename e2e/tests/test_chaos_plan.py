"""What a seed makes of requests and faults."""

from collections import Counter

from pdd_e2e.chaos import Breakage, faults, plan

BREAKAGES = [Breakage("P", "hangs", lambda _: None, (1, 5)), *(Breakage(p, "dies", lambda _: None) for p in "ABCDEFG")]


def test_a_seed_says_it_all() -> None:
    assert plan(3, 50) == plan(3, 50) != plan(4, 50)
    assert faults(3, 300, BREAKAGES) == faults(3, 300, BREAKAGES)
    assert [str(fault) for fault in faults(3, 300, BREAKAGES)] != [str(fault) for fault in faults(4, 300, BREAKAGES)]


def test_everything_breaks_while_requests_come() -> None:
    for seed in range(50):
        drawn = faults(seed, 300, BREAKAGES)
        times = Counter(fault.breakage for fault in drawn)
        assert times.keys() == set(BREAKAGES)
        assert times.total() == len(BREAKAGES) * 5 // 4
        assert [fault.after for fault in drawn] == sorted({fault.after for fault in drawn})
        assert 0 < drawn[0].after < drawn[-1].after < 300
        assert all(1 <= fault.seconds <= 5 for fault in drawn if fault.breakage is BREAKAGES[0])
