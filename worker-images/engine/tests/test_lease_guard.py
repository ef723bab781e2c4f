"""How long a reader may trust a lease: what of the guard needs no vLLM."""

import math

import pytest

from pdd_engine.plugins.lease_guard import Ends, Terms, Watch, usable_seconds

TERMS = Terms(30)


class TestUsable:
    @pytest.mark.parametrize(("until", "seconds"), [(None, None), (112.5, 12.5), (100, 0), (99, -1)])
    def test_a_moment(self, until: object, seconds: float | None) -> None:
        assert usable_seconds(until, now=100.0) == seconds

    @pytest.mark.parametrize("until", ["soon", True, [], math.nan, math.inf, {}])
    def test_what_is_no_moment_is_too_late(self, until: object) -> None:
        assert usable_seconds(until, now=100.0) == -math.inf


class TestTerms:
    """vLLM keeps a lease for 30 s until the first heartbeat, and for 20 s from each; a reader sends one each 5 s."""

    def test_a_heartbeat_is_trusted_for_less_than_it_is_good_for(self) -> None:
        assert 5 < TERMS.trust <= 20 - 5

    @pytest.mark.parametrize("age", [0, 12, 20])
    def test_the_first_heartbeat_arrives_before_a_lease_ends(self, age: float) -> None:
        """A router lets leases be used for 20 s."""
        assert age + TERMS.trust_at_arrival(20 - age) == 30 - 3
        assert TERMS.trust_at_arrival(20 - age) > 5

    def test_who_says_nothing_is_trusted_as_after_a_heartbeat(self) -> None:
        assert TERMS.trust_at_arrival(None) == TERMS.trust

    def test_a_dead_line_is_noticed_before_a_lease_ends(self) -> None:
        """The last heartbeat that arrived was sent 5 s before the first one that did not."""
        assert 5 + TERMS.silence < TERMS.trust

    def test_a_sleep_of_the_owner_is_noticed_before_it_matters(self) -> None:
        assert 0 < TERMS.sleep < 3


class TestWatch:
    def test_heartbeats_keep_a_lease_good(self) -> None:
        watch = Watch(good_until=107)
        for now in range(100, 200, 5):
            assert watch.is_good(now)
            watch.renewed(now, now, TERMS.trust)
        assert watch.is_good(195 + 15)
        assert not watch.is_good(195 + 15.1)

    def test_a_heartbeat_that_comes_too_late_brings_nothing_back(self) -> None:
        watch = Watch(good_until=107)
        watch.renewed(107.1, 107.1, TERMS.trust)
        assert not watch.is_good(108)

    def test_a_sleep_while_a_heartbeat_is_sent(self) -> None:
        """It may have gone out before the sleep or after it."""
        watch = Watch(good_until=107)
        watch.renewed(101, 106, TERMS.trust)
        assert watch.is_good(101 + 15)
        assert not watch.is_good(101 + 15.1)
        watch = Watch(good_until=107)
        watch.renewed(101, 130, TERMS.trust)
        assert not watch.is_good(130)

    def test_a_heartbeat_takes_no_time_away(self) -> None:
        watch = Watch(good_until=127)
        watch.renewed(101, 101, TERMS.trust)
        assert watch.is_good(127)


class TestEnds:
    """A prefill engine looks 100 times a second, or after each of its steps."""

    @staticmethod
    def look(ends: Ends, leases: dict[str, float], now: float) -> list[str]:
        return sorted(ends.extend_after_sleep(leases, now, sleep=TERMS.sleep, extension=20))

    def test_who_is_awake_ends_leases_in_time(self) -> None:
        ends, leases = Ends(100), {"a": 100.5, "b": 130.0}
        assert self.look(ends, leases, 100.4) == []
        assert self.look(ends, leases, 100.5) == ["a"]
        assert leases == {"a": 100.5, "b": 130.0}

    def test_who_slept_first_hears_what_readers_have_sent(self) -> None:
        ends, leases = Ends(100), {"a": 110.0, "b": 141.0, "c": 190.0}
        assert self.look(ends, leases, 140) == []
        assert leases == {"a": 160.0, "b": 160.0, "c": 190.0}

    def test_one_sleep_after_another_does_not_keep_a_lease_that_nobody_renews(self) -> None:
        """Such is an engine whose every step is long."""
        ends, leases = Ends(100), {"a": 110.0}
        over = [now for now in range(105, 200, 4) if self.look(ends, leases, now)]
        assert over
        assert over[0] - 20 < 105 + 4 * 2 + 20

    def test_whose_reader_was_heard_gets_time_again(self) -> None:
        ends, leases = Ends(100), {"a": 110.0}
        assert self.look(ends, leases, 120) == []
        ends.heard(["a", "unknown"])
        assert self.look(ends, leases, 160) == []
        assert self.look(ends, leases, 200) == ["a"]

    def test_a_lease_that_is_gone_is_forgotten(self) -> None:
        ends, leases = Ends(100), {"a": 110.0}
        self.look(ends, leases, 120)
        leases.clear()
        self.look(ends, leases, 120.1)
        leases["a"] = 121.0
        assert self.look(ends, leases, 150) == []
