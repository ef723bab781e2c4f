"""The line's own byte counters, where the suite may ask the line (localkube's emulator)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A command that prints one line a direction, `dir=ab ... out_bytes=N`; empty: the line cannot be asked.
_COMMAND = os.environ.get("PDD_E2E_LINE", "")


@dataclass
class Crossed:
    """IP bytes that left the line at the far end, headers and retransmissions included."""

    a_to_b: int = 0
    b_to_a: int = 0


def countable() -> bool:
    return bool(_COMMAND)


def _now() -> Crossed:
    done = subprocess.run([*_COMMAND.split(), "show"], capture_output=True, text=True, check=True)
    rows = [dict(word.split("=", 1) for word in row.split() if "=" in word) for row in done.stdout.splitlines()]
    count = {row["dir"]: int(row["out_bytes"]) for row in rows if "dir" in row}
    return Crossed(count["ab"], count["ba"])


@contextmanager
def crossing() -> Iterator[Crossed]:
    """Filled at the end of the context with what crossed meanwhile, whoever sent it."""
    before, crossed = _now(), Crossed()
    yield crossed
    after = _now()
    crossed.a_to_b = after.a_to_b - before.a_to_b
    crossed.b_to_a = after.b_to_a - before.b_to_a
