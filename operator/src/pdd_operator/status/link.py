"""The status of a WANLink, from what front routers measured.

Round trips jitter, so a number is written again only when it left the neighbourhood of the written one:
a quiet line causes no writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pdd_operator.api.quantity import micros
from pdd_operator.api.wan_link import LinkPath, RoundTrip, WANLink, WANLinkStatus
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding, conditions, truth


@dataclass(frozen=True)
class Report:
    """One front router's view of the line."""

    origin: str
    peer: str
    reachable: bool
    p50_micros: int | None
    p99_micros: int | None


def link_status(link: WANLink, seen: Sequence[Report] | Problem, *, numbers_due: bool, now: str) -> WANLinkStatus:
    """The next status; numbers stay as they are until they are due."""
    previous = link.status
    if isinstance(seen, Problem):
        paths = previous.paths
        findings = [
            Finding("Ready", "Unknown", seen.reason, seen.message),
            Finding("Reachable", "Unknown", seen.reason, seen.message),
        ]
    else:
        paths = _paths(seen, previous.paths, numbers_due)
        reachable = any(report.reachable for report in seen)
        text = "the other end answers" if reachable else "the other end has not answered for 5 s; requests wait"
        reason = "Answering" if reachable else "NoAnswer"
        findings = [
            Finding("Ready", truth(reachable), reason, text),
            Finding("Reachable", truth(reachable), reason, text),
        ]
    budget = _within_budget(link, paths)
    if budget is not None:
        findings.append(budget)
    generation = link.metadata.generation
    median = _worst_median(paths)
    return WANLinkStatus(
        observed_generation=generation,
        conditions=conditions(findings, previous=previous.conditions, generation=generation, now=now),
        paths=paths,
        round_trip=None if median is None else _readable(median),
    )


def _paths(seen: Sequence[Report], previous: Sequence[LinkPath], numbers_due: bool) -> list[LinkPath]:
    before = {(path.from_, path.to): path.round_trip_micros for path in previous}
    measured: dict[tuple[str, str], RoundTrip | None] = {}
    for report in sorted(seen, key=lambda each: (each.origin, each.peer)):
        path = report.origin, report.peer
        measured.setdefault(path, None)
        if report.p50_micros is None or report.p99_micros is None:
            continue
        known = measured[path]
        measured[path] = RoundTrip(
            p50=max(report.p50_micros, known.p50 if known else 0),
            p99=max(report.p99_micros, known.p99 if known else 0),
        )
    return [
        LinkPath(from_=path[0], to=path[1], round_trip_micros=_settled(before.get(path), new, numbers_due))
        for path, new in measured.items()
    ]


def _settled(written: RoundTrip | None, measured: RoundTrip | None, due: bool) -> RoundTrip | None:
    if measured is None:
        return written
    if written is None:
        return RoundTrip(p50=_rounded(measured.p50), p99=_rounded(measured.p99))
    if not due or (
        _near(measured.p50, written.p50, percent=10, floor=500)
        and _near(measured.p99, written.p99, percent=50, floor=5_000)
    ):
        return written
    return RoundTrip(p50=_rounded(measured.p50), p99=_rounded(measured.p99))


def _near(new: int, old: int, *, percent: int, floor: int) -> bool:
    return abs(new - old) <= max(floor, old * percent // 100)


def _rounded(value: int) -> int:
    """Two significant digits."""
    step = int(10 ** max(0, len(str(value)) - 2))
    return (value + step // 2) // step * step


def _worst_median(paths: Sequence[LinkPath]) -> int | None:
    return max((path.round_trip_micros.p50 for path in paths if path.round_trip_micros), default=None)


def _readable(value: int) -> str:
    return f"{value}us" if value < 1000 else f"{value / 1000:g}ms"


def _within_budget(link: WANLink, paths: Sequence[LinkPath]) -> Finding | None:
    budget = link.spec.budget.round_trip
    if budget is None:
        return None
    median = _worst_median(paths)
    if median is None:
        return Finding("LatencyWithinBudget", "Unknown", "NotMeasured", "no round trip was measured yet")
    within = median <= micros(budget)
    return Finding(
        "LatencyWithinBudget",
        truth(within),
        "WithinBudget" if within else "OverBudget",
        f"the median round trip is {_readable(median)}, the budget {budget}",
    )
