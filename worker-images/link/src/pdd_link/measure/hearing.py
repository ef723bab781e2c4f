"""What one stream of another agent's requests has brought us, in one lane: no request counts twice."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from pdd_link.measure.echoes import WINDOW_SECONDS, Loss

# How far a packet may be overtaken and still count: 12 s of probes at ten a second.
_REORDER = 128


@dataclass(frozen=True)
class Heard:
    """Requests received in the last minute."""

    loss: Loss
    """By the gaps in the sequence; silence has no gaps, so see what the other end says it sent."""
    remarked: int
    """Received in another traffic class than they were sent in."""
    largest: int
    """Bytes with the IP header; 0 where nothing was received."""
    last_at: float | None
    """Not only of the window."""

    @property
    def received(self) -> int:
        return self.loss.of - self.loss.lost


@dataclass(frozen=True, slots=True)
class _Request:
    at: float
    sequence: int
    size: int
    remarked: bool


class Hearing:
    """Times are seconds of a monotonic clock that the caller reads."""

    def __init__(self) -> None:
        self._requests: deque[_Request] = deque()
        self._highest = -1
        self._seen = 0
        """Bit n: the request `_highest - n` was received."""
        self.received = 0
        """Since the first."""
        self.last_at: float | None = None

    def accept(self, sequence: int, *, size: int, remarked: bool, now: float) -> bool:
        """False for a request that was received before, or is too old to know."""
        if sequence > self._highest:
            self._seen = (self._seen << min(sequence - self._highest, _REORDER) | 1) & ((1 << _REORDER) - 1)
            self._highest = sequence
        else:
            bit = 1 << (self._highest - sequence)
            if self._highest - sequence >= _REORDER or self._seen & bit:
                return False
            self._seen |= bit
        self._forget(now)
        self._requests.append(_Request(now, sequence, size, remarked))
        self.received += 1
        self.last_at = now
        return True

    def summary(self, now: float) -> Heard:
        self._forget(now)
        sequences = [request.sequence for request in self._requests]
        span = max(sequences) - min(sequences) + 1 if sequences else 0
        return Heard(
            loss=Loss(span - len(sequences), span),
            remarked=sum(request.remarked for request in self._requests),
            largest=max((request.size for request in self._requests), default=0),
            last_at=self.last_at,
        )

    def _forget(self, now: float) -> None:
        while self._requests and now - self._requests[0].at > WINDOW_SECONDS:
            self._requests.popleft()


def together(parts: Iterable[Heard]) -> Heard:
    """Of several streams."""
    heard = list(parts)
    return Heard(
        loss=Loss(sum(part.loss.lost for part in heard), sum(part.loss.of for part in heard)),
        remarked=sum(part.remarked for part in heard),
        largest=max((part.largest for part in heard), default=0),
        last_at=max((part.last_at for part in heard if part.last_at is not None), default=None),
    )
