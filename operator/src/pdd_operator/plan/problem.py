"""Why something cannot go on, for a condition."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A reason that programs compare, and a message that says what to do."""

    reason: str
    message: str
    needs_help: bool = True
    """False when waiting alone may solve it."""
