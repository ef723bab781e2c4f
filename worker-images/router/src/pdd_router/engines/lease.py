"""A prompt's KV that a prefill engine keeps for one reader, and until when that may be read."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

USABLE_SHARE = 2 / 3
"""Of the time that P keeps a lease without a word from its reader. A pull that would begin later is refused: P may have
given the blocks away, and MD would read somebody else's."""

_USABLE_UNTIL = "pdd_usable_until"


@dataclass(frozen=True)
class Lease:
    kv_transfer_params: dict[str, Any]
    usable_until: float
    """By this process's monotonic clock."""

    def params(self) -> dict[str, Any]:
        """For an engine here, which minds the time itself (pdd_engine's plugin lease_guard)."""
        return timed(self.kv_transfer_params, self.usable_until - monotonic())


def timed(kv_transfer_params: Mapping[str, Any], usable_seconds: float) -> dict[str, Any]:
    """Engines are told a moment of the epoch: they may hang between here and their scheduler."""
    return {**kv_transfer_params, _USABLE_UNTIL: time() + usable_seconds}
