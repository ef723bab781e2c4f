"""The status of a WANLink, from what link agents and front routers measured."""

from collections.abc import Sequence
from decimal import Decimal

from pdd_operator.api.quantity import micros
from pdd_operator.api.wan_link import LinkPath, WANLink, WANLinkStatus
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding, conditions
from pdd_operator.status.link_directions import End, Report, echoed_lately, established, reachable
from pdd_operator.status.link_paths import measured, settled


def link_status(
    link: WANLink, ends: Sequence[End], reports: Sequence[Report], *, numbers_due: bool, now: str
) -> WANLinkStatus:
    """The next status; numbers stay as they are until they are due."""
    paths = settled(measured(ends, reports), link.status.paths, due=numbers_due) or link.status.paths
    crosses = reachable(ends, reports)
    whole = _path_mtu(ends, crosses)
    findings = [
        _ready(crosses, whole),
        _provisioned(ends),
        established(ends),
        crosses,
        whole,
        *_within_budget(link, ends, paths, crosses),
    ]
    generation = link.metadata.generation
    median = _worst_median(paths)
    return WANLinkStatus(
        observed_generation=generation,
        conditions=conditions(findings, previous=link.status.conditions, generation=generation, now=now),
        paths=paths,
        round_trip=None if median is None else _readable(median),
    )


def link_deletion_status(link: WANLink, left: Sequence[Problem], *, now: str) -> WANLinkStatus:
    """The previous status, with what the deletion waits for."""
    generation, message = link.metadata.generation, "; ".join(problem.message for problem in left)
    findings = [Finding("Ready", "False", "Deleting", message), Finding("Provisioned", "False", "Deleting", message)]
    known = conditions(findings, previous=link.status.conditions, generation=generation, now=now)
    return link.status.model_copy(update={"observed_generation": generation, "conditions": known})


def _ready(crosses: Finding, whole: Finding) -> Finding:
    """Requests may use the line: both directions work, and KV's full-size packets cross."""
    if crosses.status == "True" and whole.status == "False":
        return Finding("Ready", "False", whole.reason, whole.message)
    return Finding("Ready", crosses.status, crosses.reason, crosses.message)


def _provisioned(ends: Sequence[End]) -> Finding:
    for problem in (end.problem for end in ends if end.problem is not None):
        return Finding("Provisioned", "False" if problem.needs_help else "Unknown", problem.reason, problem.message)
    for end in ends:
        if not end.ready:
            return Finding("Provisioned", "False", "AgentsNotReady", f"no link agent is ready on {end.cluster} yet")
    return Finding("Provisioned", "True", "AgentsRun", "link agents run at both ends")


def _path_mtu(ends: Sequence[End], crosses: Finding) -> Finding:
    """Small packets cross a line whose tunnels swallow the large ones in silence; KV does not."""
    kind = "PathMTUValid"
    if crosses.status != "True":
        return Finding(kind, "Unknown", "NotReachable", "nothing crosses the line that could be measured")
    known = [
        (end, other, peer.path_mtu)
        for end, other in ((ends[0], ends[1]), (ends[1], ends[0]))
        for each in end.measurements
        for peer in each.peers
        if peer.path_mtu is not None and peer.path_mtu.full_size_passes is not None and echoed_lately(peer)
    ]
    if not known:
        return Finding(kind, "Unknown", "NotMeasured", "no full-size packet was tried lately")
    for end, other, mtu in known:
        if mtu.full_size_passes:
            continue
        at_fault = _at_fault(end.cluster, other.cluster, mtu.forward_bytes, mtu.return_bytes, mtu.expected_bytes)
        most = f"above {mtu.bytes} bytes" if mtu.bytes else "of full size"
        return Finding(
            kind,
            "False",
            "BlackHole",
            f"packets {most} vanish {at_fault} (the pods send {mtu.expected_bytes}), so KV transfers hang; set the "
            f"pods' MTU to {mtu.bytes or 1280} at both ends, or have the line carry {mtu.expected_bytes}",
        )
    return Finding(kind, "True", "FullSizePasses", f"packets of {known[0][2].expected_bytes} bytes cross")


def _at_fault(here: str, there: str, forward: int | None, back: int | None, expected: int) -> str:
    """In which direction, where only one of them is known to be narrow."""
    narrow_forward, narrow_back = (size is not None and size < expected for size in (forward, back))
    if narrow_forward != narrow_back:
        one, other = (here, there) if narrow_forward else (there, here)
        return f"from {one} to {other}"
    return "on the line"


def _worst_median(paths: Sequence[LinkPath]) -> int | None:
    """Of the class in which tokens go."""
    trips = [path.round_trip_micros for path in paths if path.traffic_class == "EF"]
    return max((trip.p50 for trip in trips if trip is not None), default=None)


def _readable(value: int) -> str:
    return f"{value}us" if value < 1000 else f"{value / 1000:g}ms"


def _within_budget(link: WANLink, ends: Sequence[End], paths: Sequence[LinkPath], crosses: Finding) -> list[Finding]:
    """A condition for what the budget names."""
    budget = link.spec.budget
    findings = []
    if budget.round_trip is not None or budget.jitter is not None:
        findings.append(_latency(link, paths, crosses))
    if budget.loss_percent is not None:
        findings.append(_loss(Decimal(budget.loss_percent), ends, crosses))
    return findings


def _latency(link: WANLink, paths: Sequence[LinkPath], crosses: Finding) -> Finding:
    kind, budget = "LatencyWithinBudget", link.spec.budget
    median = _worst_median(paths)
    if crosses.status != "True" or median is None:
        return Finding(kind, "Unknown", "NotMeasured", "no recent round trip is known")
    jitter = max((path.jitter_micros for path in paths if path.jitter_micros is not None), default=None)
    over = []
    if budget.round_trip is not None and median > micros(budget.round_trip):
        over.append(f"the median round trip is {_readable(median)}, the budget {budget.round_trip}")
    if budget.jitter is not None and jitter is not None and jitter > micros(budget.jitter):
        over.append(f"the jitter is {_readable(jitter)}, the budget {budget.jitter}")
    if over:
        return Finding(kind, "False", "OverBudget", "; ".join(over))
    return Finding(
        kind, "True", "WithinBudget", f"the median round trip is {_readable(median)}, the budget {budget.round_trip}"
    )


def _loss(budget: Decimal, ends: Sequence[End], crosses: Finding) -> Finding:
    """Over the budget only where chance does not explain it: a minute has some 600 probes of a class."""
    kind = "LossWithinBudget"
    if crosses.status != "True":
        return Finding(kind, "Unknown", "NotMeasured", "nothing crosses the line that could be measured")
    known = [
        (Decimal(echoes.forward_loss_percent), echoes.sent, end.cluster, other.cluster)
        for end, other in ((ends[0], ends[1]), (ends[1], ends[0]))
        for each in end.measurements
        for peer in each.peers
        for echoes in peer.classes
        if echoes.forward_loss_percent is not None and echoes.sent
    ]
    if not known:
        return Finding(kind, "Unknown", "NotMeasured", "no loss was measured yet")
    for loss, sent, here, there in known:
        expected = budget / 100 * sent
        if loss / 100 * sent > expected + 2 * max(expected, Decimal(1)).sqrt():
            message = f"more packets are lost from {here} to {there} than the budget of {budget} %: see status.paths"
            return Finding(kind, "False", "OverBudget", message)
    return Finding(kind, "True", "WithinBudget", f"the budget is {budget} %")
