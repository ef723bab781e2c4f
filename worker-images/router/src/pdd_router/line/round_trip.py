"""The round trip to a site: the last minute of pings."""

from collections import deque
from math import ceil

# A ping a second: a minute is recent enough to decide on and long enough for a 99th percentile to mean
# "the worst of the minute".
WINDOW = 60

# Five pings in a row without an answer, at a ping a second.
UNREACHABLE_AFTER_SECONDS = 5.0


class RoundTrips:
    """Times are seconds of a monotonic clock that the caller reads."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=WINDOW)
        self._answered_at: float | None = None

    def answered(self, seconds: float, *, now: float) -> None:
        self._samples.append(seconds)
        self._answered_at = now

    def reachable(self, now: float) -> bool:
        return self._answered_at is not None and now - self._answered_at < UNREACHABLE_AFTER_SECONDS

    def age(self, now: float) -> float | None:
        return None if self._answered_at is None else now - self._answered_at

    def __len__(self) -> int:
        return len(self._samples)

    def percentile(self, p: float) -> float | None:
        """Nearest rank; None without samples."""
        if not self._samples:
            return None
        ranked = sorted(self._samples)
        return ranked[max(0, ceil(p / 100 * len(ranked)) - 1)]
