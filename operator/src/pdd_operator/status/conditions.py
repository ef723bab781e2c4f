"""Conditions: findings about now, merged with what was known before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pdd_operator.api.base import Condition, ConditionStatus

PENDING: Final = "Pending"
"""The reason of a condition about which nothing is known yet."""

_LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True)
class Finding:
    """A condition without its history."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


def truth(value: bool) -> ConditionStatus:
    """The condition status of a known fact."""
    return "True" if value else "False"


def conditions(
    findings: Iterable[Finding], *, previous: Sequence[Condition], generation: int, now: str
) -> list[Condition]:
    """The findings as conditions; the transition time stays while the status does."""
    before = {condition.type: condition for condition in previous}
    merged = []
    for finding in findings:
        known = before.get(finding.type)
        unchanged = known is not None and known.status == finding.status
        merged.append(
            Condition(
                type=finding.type,
                status=finding.status,
                observed_generation=generation,
                last_transition_time=known.last_transition_time if known and unchanged else now,
                reason=finding.reason,
                message=finding.message[:_LONGEST_MESSAGE],
            )
        )
    return merged


def find(among: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type."""
    return next((condition for condition in among if condition.type == kind), None)
