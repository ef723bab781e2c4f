"""What came back of a peer's small echoes in the last minute, in one class."""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

WINDOW_SECONDS = 60.0

# A token that is later than this is no better than a lost one.
LATE_SECONDS = 2.0


@dataclass(slots=True)
class _Probe:
    sequence: int
    sent_at: float
    round_trip: float | None = None
    responder: bytes = b""
    received: int = 0


@dataclass(frozen=True)
class Loss:
    """`lost` of `of` packets."""

    lost: int
    of: int


@dataclass(frozen=True)
class Summary:
    """Of the probes that have been answered, or could have been by now. Times in seconds."""

    sent: int
    echoed: int
    forward: Loss | None
    """On the way to the peer; None where too little has come back to tell."""
    back: Loss | None
    p50: float | None
    p99: float | None
    jitter: float | None
    """Mean absolute difference of consecutive round trips: unlike RFC 3550's smoothed one it has no memory beyond the
    window, so two ends can be compared."""

    @property
    def loss(self) -> Loss:
        return Loss(self.sent - self.echoed, self.sent)


class Echoes:
    """Times are seconds of a monotonic clock that the caller reads."""

    def __init__(self) -> None:
        self._probes: deque[_Probe] = deque()
        self._by_sequence: dict[int, _Probe] = {}
        self.last_at: float | None = None
        """When the last echo came; not only of the window."""

    def sent(self, sequence: int, *, now: float) -> None:
        self._forget(now)
        probe = _Probe(sequence, now)
        self._probes.append(probe)
        self._by_sequence[sequence] = probe

    def echoed(self, sequence: int, *, responder: bytes, received: int, now: float) -> float | None:
        """Returns the round trip; None for an echo that is not waited for: late, doubled or of no probe.

        `received` is how many of our probes the responder had received by then."""
        probe = self._by_sequence.get(sequence)
        if probe is None or probe.round_trip is not None or now - probe.sent_at > LATE_SECONDS:
            return None
        probe.round_trip = now - probe.sent_at
        probe.responder, probe.received = responder, received
        self.last_at = now
        return probe.round_trip

    def summary(self, now: float) -> Summary:
        self._forget(now)
        trips = [probe.round_trip for probe in self._probes if probe.round_trip is not None]
        overdue = sum(1 for p in self._probes if p.round_trip is None and now - p.sent_at > LATE_SECONDS)
        forward, back = self._directions()
        differences = [abs(later - earlier) for earlier, later in pairwise(trips)]
        ranked = sorted(trips)
        return Summary(
            sent=len(trips) + overdue,
            echoed=len(trips),
            forward=forward,
            back=back,
            p50=_percentile(ranked, 50),
            p99=_percentile(ranked, 99),
            jitter=sum(differences) / len(differences) if differences else None,
        )

    def _directions(self) -> tuple[Loss | None, Loss | None]:
        """Between two echoes the responder's count tells what reached it; the rest of what is missing was lost on the
        way back. What was sent after the last echo may be lost in either direction, and counts in neither."""
        echoed = [probe for probe in self._probes if probe.round_trip is not None]
        # One that restarted, or another behind the same address, counts from nothing.
        ours = [probe for probe in echoed if probe.responder == echoed[-1].responder]
        if len(ours) < 2:
            return None, None
        first, last = ours[0], ours[-1]
        sent = last.sequence - first.sequence
        # Packets that overtook each other, or reached another responder, make the counts differ by a few.
        reached = min(max(last.received - first.received, len(ours) - 1), sent)
        return Loss(sent - reached, sent), Loss(reached - (len(ours) - 1), reached)

    def _forget(self, now: float) -> None:
        while self._probes and now - self._probes[0].sent_at > WINDOW_SECONDS:
            del self._by_sequence[self._probes.popleft().sequence]


def _percentile(ranked: list[float], p: float) -> float | None:
    """Nearest rank; None without samples."""
    return ranked[max(0, ceil(p / 100 * len(ranked)) - 1)] if ranked else None
