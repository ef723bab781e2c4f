"""Which changes of conditions are worth an Event."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pdd_operator.api.base import Condition
from pdd_operator.status.conditions import PENDING, find

_GOOD_WHEN_FALSE: Final = {"Stalled"}
_SILENT: Final = {"Reconciling"}


@dataclass(frozen=True)
class Transition:
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def transitions(previous: Sequence[Condition], current: Sequence[Condition]) -> list[Transition]:
    """An Event for each condition that took another status; at the start only for what is wrong."""
    events = []
    for condition in current:
        before = find(previous, condition.type)
        if condition.type in _SILENT or (before and before.status == condition.status):
            continue
        good = "False" if condition.type in _GOOD_WHEN_FALSE else "True"
        first = before is None or before.reason == PENDING
        if first and (condition.type == "Ready" or condition.status in {good, "Unknown"}):
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
