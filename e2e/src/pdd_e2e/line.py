"""The line's own counters and settings, where the suite may ask the line (localkube's emulator)."""

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


def _line(*arguments: str) -> str:
    return subprocess.run([*_COMMAND.split(), *arguments], capture_output=True, text=True, check=True).stdout


def _shown() -> dict[str, dict[str, str]]:
    """Settings and counters by direction: `ab`, `ba`."""
    rows = [dict(word.split("=", 1) for word in row.split() if "=" in word) for row in _line("show").splitlines()]
    return {row["dir"]: row for row in rows if "dir" in row}


def now() -> Crossed:
    """Since the line began."""
    shown = _shown()
    return Crossed(int(shown["ab"]["out_bytes"]), int(shown["ba"]["out_bytes"]))


@contextmanager
def changed(direction: str = "", **settings: str) -> Iterator[None]:
    """The line with other settings (`rate="8mbit"`, `delay="40ms"`), in both directions or one (`ab`), meanwhile."""
    before = _shown()
    only = [f"dir={direction}"] if direction else []
    _line("set", *only, *(f"{name}={value}" for name, value in settings.items()))
    try:
        yield
    finally:
        for each, row in before.items():
            _line("set", f"dir={each}", *(f"{name}={row[name]}" for name in settings))


@contextmanager
def cut() -> Iterator[None]:
    """Silence in both directions while the context lasts."""
    _line("down")
    try:
        yield
    finally:
        _line("up")


@contextmanager
def crossing() -> Iterator[Crossed]:
    """Filled at the end of the context with what crossed meanwhile, whoever sent it."""
    before, crossed = now(), Crossed()
    yield crossed
    after = now()
    crossed.a_to_b = after.a_to_b - before.a_to_b
    crossed.b_to_a = after.b_to_a - before.b_to_a
