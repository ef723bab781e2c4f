"""Whether all engines run the same model with the same KV format, as the front routers found it."""

from collections.abc import Iterable, Sequence
from typing import Final

from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding
from pdd_operator.status.telemetry import FrontTelemetry, Mismatch

KV_COMPATIBLE: Final = "KVCompatible"

_WHAT_TO_DO: Final = (
    "run the same image everywhere (spec.engine.image), and the same revision of the model from the same files on both "
    "sites (spec.model.source)"
)
_ROOM_FOR_PAIRS: Final = 700
"""So that what to do still fits into a condition's message."""


def kv_compatible(seen: Sequence[FrontTelemetry] | Problem, *, prefill_site: str) -> Finding:
    """What the front routers found; one mismatch of one of them is enough."""
    if isinstance(seen, Problem):
        return Finding(KV_COMPATIBLE, "Unknown", "NoTelemetry", seen.message)
    found = [each.compatibility for each in seen if each.compatibility is not None]
    pairs = {_pair(mismatch, prefill_site) for each in found for mismatch in each.mismatches}
    if pairs:
        return Finding(KV_COMPATIBLE, "False", "Mismatch", f"{_listed(sorted(pairs))}; {_WHAT_TO_DO}")
    checked = max((each.checked for each in found), default=0)
    if checked > 0:
        return Finding(KV_COMPATIBLE, "True", "SameModelAndFormat", f"{checked} engines were compared")
    text = (
        "the front router has compared no engines yet"
        if found
        else "the front router does not compare engines; use a newer router image"
    )
    return Finding(KV_COMPATIBLE, "Unknown", "NoTelemetry", text)


def _pair(mismatch: Mismatch, prefill_site: str) -> str:
    one, other = mismatch.prefill, mismatch.other
    return (
        f"{mismatch.field}: {one.engine} (prefill on {prefill_site}) has {_shown(one.value)}, "
        f"{other.engine} ({other.role} on {other.site}) has {_shown(other.value)}"
    )


def _shown(value: str) -> str:
    """A value as it is, where it is no longer than a fingerprint."""
    return value if len(value) <= 64 else f"{value[:64]}..."


def _listed(pairs: Iterable[str]) -> str:
    """As many as fit, and how many more there are."""
    first, *others = pairs
    listed, left = first, len(others)
    for pair in others:
        if len(listed) + len(pair) > _ROOM_FOR_PAIRS:
            break
        listed, left = f"{listed}; {pair}", left - 1
    return f"{listed}; and {left} more" if left else listed
