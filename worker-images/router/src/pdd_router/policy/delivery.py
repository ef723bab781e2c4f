"""How fast a line delivers, measured on the transfers that it carries."""

from math import exp

# An hour of small transfers must not wear the rate of the last large one away, an hour of large ones may.
_TAU_SECONDS = 5.0

# What a transfer takes beside the line: a step of either engine, the routers. One that took hardly longer says nothing.
_BESIDE_SECONDS = 0.1

# One that took longer than this many times what it should have counts as if it had taken so long: it may have waited
# for an engine, and not for the line. A line that is so slow needs some more transfers to be known.
_MOST_SURPRISE = 10.0


class Delivery:
    """Amounts a second, at most `most`: what was declared. A line that gives more for a moment does not for long.

    Several that are under way share the line, and each counts the time that would have been its own: all of them
    together what the line was busy.
    """

    def __init__(self, most: float):
        self._most = most
        self.rate = most
        self._own_seconds = 0.0
        """Since ever, of one transfer that was under way all the time."""
        self._under_way = 0
        self._at = 0.0

    def declared(self, most: float) -> None:
        """Another line, another rate: measured from there on."""
        if most != self._most:
            self._most = self.rate = most

    def began(self, now: float) -> float:
        """A mark for `ended`."""
        self._advance(now)
        self._under_way += 1
        return self._own_seconds

    def ended(self, mark: float, now: float) -> float:
        """Its own seconds on the line."""
        self._advance(now)
        self._under_way -= 1
        return self._own_seconds - mark

    def delivered(self, amount: float, *, own_seconds: float, seconds: float, round_trip_seconds: float) -> None:
        """One that took `seconds` in all, `own_seconds` of them its own, is complete."""
        beside = round_trip_seconds + _BESIDE_SECONDS
        if amount <= 0 or seconds < 2 * beside:
            return
        on_the_line = own_seconds * (1 - beside / seconds)
        if on_the_line <= 0:
            return
        weight = min(on_the_line, _MOST_SURPRISE * amount / self.rate)
        share = 1 - exp(-weight / _TAU_SECONDS)
        self.rate = min(self._most, self.rate + share * (amount / on_the_line - self.rate))

    def progress(self, mark: float, now: float) -> float:
        """How much of one is probably there."""
        self._advance(now)
        return (self._own_seconds - mark) * self.rate

    def _advance(self, now: float) -> None:
        if self._under_way:
            self._own_seconds += (now - self._at) / self._under_way
        self._at = now
