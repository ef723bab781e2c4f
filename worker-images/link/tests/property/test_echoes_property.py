"""A line that loses, delays and doubles at random: the counts stay true."""

from hypothesis import given
from hypothesis import strategies as st

from pdd_link.measure.echoes import LATE_SECONDS, Echoes, Loss
from pdd_link.measure.hearing import Hearing

# Of each probe: whether it reaches the responder, whether its echo comes back, and after how long.
fates = st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 3)), max_size=200)


def run(probes: list[tuple[bool, bool, float]]) -> tuple[Echoes, int]:
    echoes, hearing, accepted = Echoes(), Hearing(), 0
    arrivals = []
    for n, (there, back, took) in enumerate(probes):
        now = n / 10
        echoes.sent(n, now=now)
        if there:
            hearing.accept(n, size=88, remarked=False, now=now)
            if back:
                arrivals.append((now + took, n, hearing.received))
    for at, n, received in sorted(arrivals):
        for _ in range(2):  # the network may double a packet
            accepted += echoes.echoed(n, responder=b"r", received=received, now=at) is not None
    return echoes, accepted


@given(fates)
def test_every_probe_is_echoed_once_or_lost(probes: list[tuple[bool, bool, float]]) -> None:
    echoes, accepted = run(probes)
    summary = echoes.summary(now=len(probes) / 10 + 3.1)
    in_time = [took for n, (there, back, took) in enumerate(probes)
               if there and back and n / 10 + took - n / 10 <= LATE_SECONDS]  # fmt: skip
    assert accepted == summary.echoed == len(in_time)
    assert summary.sent == len(probes)
    assert summary.loss == Loss(len(probes) - len(in_time), len(probes))
    if in_time:
        assert summary.p50 is not None
        assert summary.p99 is not None
        assert min(in_time) - 1e-6 <= summary.p50 <= summary.p99 <= max(in_time) + 1e-6


@given(fates)
def test_directions_are_told_exactly_between_the_first_and_the_last_echo(
    probes: list[tuple[bool, bool, float]],
) -> None:
    echoes, _ = run(probes)
    summary = echoes.summary(now=len(probes) / 10 + 3.1)
    came = [n for n, (there, back, took) in enumerate(probes) if there and back and n / 10 + took - n / 10 <= 2.0]
    if len(came) < 2:
        assert summary.forward is summary.back is None
        return
    between = probes[came[0] + 1 : came[-1] + 1]
    reached = sum(there for there, _, _ in between)
    assert summary.forward == Loss(len(between) - reached, len(between))
    assert summary.back == Loss(reached - (len(came) - 1), reached)


@given(st.lists(st.integers(0, 300), max_size=300))
def test_no_request_counts_twice(sequences: list[int]) -> None:
    hearing = Hearing()
    accepted = [n for n in sequences if hearing.accept(n, size=88, remarked=False, now=0.0)]
    assert len(accepted) == len(set(accepted)) == hearing.received
    assert all(n in accepted for n in sequences if n > max(sequences) - 128)
    summary = hearing.summary(0.0)
    assert 0 <= summary.loss.lost < max(1, summary.loss.of)
