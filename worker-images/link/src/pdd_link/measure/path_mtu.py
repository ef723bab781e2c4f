"""The largest packet that passes, by bisection: the small echoes do not see an MTU black hole.

Sizes are bytes with the IP header. At rest the size that should pass is tried again and again, and where it does not,
in turn with it the bounds that were found.
"""

# What every path has to pass (RFC 8200). Less is told as "not even this".
FLOOR = 1280

# One lost packet is loss; three in a row of one size, while small ones come back, are a black hole.
_MISSES = 3


class PathMTU:
    """`ceiling` is the size that should pass: the smaller MTU of the two ends' interfaces."""

    def __init__(self, ceiling: int):
        self.ceiling = ceiling
        self.passes: int | None = None
        """The largest size that came back, None for none."""
        self._fails: int | None = None
        """The smallest size that is known not to."""
        self._misses = 0
        self._turn = 0
        """Which of the known sizes is tried again."""

    @property
    def full_size_passes(self) -> bool | None:
        """None until it is known."""
        if self.passes == self.ceiling:
            return True
        return None if self._fails is None else False

    @property
    def next_size(self) -> int:
        if self._fails is None:
            return self.ceiling
        if self.passes is not None and self._fails - self.passes > 1:
            return (self._fails + self.passes) // 2
        # Found. The ceiling tells the responder which direction is at fault, and a lower bound that was wrong is
        # found by trying what failed.
        lowest = min(FLOOR, self.ceiling) if self.passes is None else self.passes
        return (lowest, self._fails, self.ceiling)[self._turn % 3]

    def passed(self, size: int) -> None:
        self._misses = 0
        self._turn += 1
        if self._fails is not None and size >= self._fails:
            self._fails = None  # mended
        self.passes = size if self.passes is None else max(self.passes, size)

    def missed(self, size: int) -> None:
        """`size` did not come back in time, though small packets did."""
        if self._fails is not None and size >= self._fails:
            self._turn += 1  # as known
            return
        self._misses += 1
        if self._misses < _MISSES:
            return
        self._misses = 0
        self._turn = 0
        self._fails = size
        if self.passes is not None and self.passes >= size:
            self.passes = None
