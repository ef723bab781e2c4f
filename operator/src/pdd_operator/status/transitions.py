"""Which changes of conditions are worth an Event."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pdd_operator.api.base import Condition
from pdd_operator.status.conditions import find

_GOOD_WHEN_FALSE: Final = {"Stalled"}
_SILENT: Final = {"Reconciling"}


@dataclass(frozen=True)
class Transition:
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def transitions(previous: Sequence[Condition], current: Sequence[Condition]) -> list[Transition]:
    """An Event for each condition that took another status, except for its way out of the unknown start."""
    events = []
    for condition in current:
        before = find(previous, condition.type)
        if condition.type in _SILENT or (before and before.status == condition.status):
            continue
        good = "False" if condition.type in _GOOD_WHEN_FALSE else "True"
        if before is None and condition.status in {good, "Unknown"}:
            continue
        text = f"{condition.type} is {condition.status}: {condition.message or condition.reason}"
        events.append(
            Transition(
                type="Normal" if condition.status == good else "Warning",
                reason=condition.reason,
                message=text[:1024],
            )
        )
    return events
