"""A circuit breaker: a cluster that does not answer costs its callers no time."""


class Breaker:
    """Opens after some failures in a row; then lets one trial through each time its pause is over."""

    def __init__(self, *, failures: int = 2, pause: float = 5.0, longest_pause: float = 60.0) -> None:
        self._allowed = failures
        self._first_pause = pause
        self._longest_pause = longest_pause
        self._failures = 0
        self._pause = pause
        self._closed_until = 0.0

    def allows(self, now: float) -> bool:
        """Whether a request may be tried; while open, the one that asks first after the pause."""
        if self._failures < self._allowed:
            return True
        if now < self._closed_until:
            return False
        self._closed_until = now + self._pause
        return True

    def failed(self, now: float) -> None:
        """A request got no answer."""
        self._failures += 1
        if self._failures >= self._allowed:
            self._closed_until = now + self._pause
            self._pause = min(self._pause * 2, self._longest_pause)

    def succeeded(self) -> None:
        """A request got an answer, whatever it said."""
        self._failures = 0
        self._pause = self._first_pause
