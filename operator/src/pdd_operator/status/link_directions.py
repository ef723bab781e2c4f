"""Which directions of a line work, as far as both ends' agents and the routers can tell.

An end that hears the other's requests shows that this direction works, whatever becomes of its answers. An echo shows
both. Silence shows something where the other end is seen to send; and where one end hears the other's requests but none
of its answers, they have not been asked for: what it sends does not arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding
from pdd_operator.status.measurements import Measurements, Peer

DEAD_SECONDS: Final = 5
"""Agents send ten probes a second in each class on all but the thinnest lines."""


@dataclass(frozen=True)
class Report:
    """One front router's view of the line: whether the other site's router answers its pings, over TCP."""

    origin: str
    peer: str
    reachable: bool
    p50_micros: int | None
    p99_micros: int | None


@dataclass(frozen=True)
class End:
    """One end's agents. `problem` says why there are none that could be read."""

    cluster: str
    ready: int = 0
    measurements: Sequence[Measurements] = ()
    problem: Problem | None = None


Alive = bool | None
"""None: not known."""


def alive(sender: End, receiver: End) -> Alive:
    """Whether what one end sends arrives at the other."""
    if any(map(_echoed, (*sender.measurements, *receiver.measurements))):
        return True
    if any(map(_hears, receiver.measurements)):
        return True
    # A sender that hears the other end would hear its answers too, if it had anything to answer.
    known = receiver.measurements or any(map(_hears, sender.measurements))
    return False if known and any(map(_sends, sender.measurements)) else None


def established(ends: Sequence[End]) -> Finding:
    """Whether the agents know each other: probes that carry the link's key come back."""
    kind = "Established"
    if not all(end.measurements for end in ends):
        missing = next(end for end in ends if not end.measurements)
        problem = missing.problem or Problem("NoMeasurement", f"no link agent on {missing.cluster} has been read yet")
        return Finding(kind, "Unknown", problem.reason, problem.message)
    if any(_echoed(each) for end in ends for each in end.measurements):
        return Finding(kind, "True", "EchoesReturn", "probes of the link agents come back")
    return Finding(
        kind,
        "False",
        "NoEcho",
        f"no probe of the link agents has come back for {DEAD_SECONDS} s: see Reachable; if that is True, UDP does not "
        "cross where TCP does: let the agents' NodePort (Service pdd-link-...) through in both directions",
    )


def reachable(ends: Sequence[End], reports: Sequence[Report]) -> Finding:
    """Both directions; where probes say nothing or no, the routers' pings may say yes."""
    kind, (one, other) = "Reachable", ends
    there, back = alive(one, other), alive(other, one)
    if there and back:
        return Finding(kind, "True", "Answering", "both directions work")
    if any(report.reachable for report in reports):
        return Finding(kind, "True", "RouterAnswers", "the other end's router answers")
    forth = f"{one.cluster} to {other.cluster}"
    aback = f"{other.cluster} to {one.cluster}"
    if there is False and back is False:
        return Finding(kind, "False", "BothDirectionsDead", f"nothing crosses the line; {_WHAT_TO_DO}")
    if there is False or back is False:
        dead, other_one = (forth, aback) if there is False else (aback, forth)
        works = "works" if (back if there is False else there) else "is not known"
        return Finding(
            kind,
            "False",
            "OneDirectionDead",
            f"nothing crosses from {dead}; the direction {other_one} {works}; {_WHAT_TO_DO}",
        )
    if reports:
        silent = [f"{end.cluster} hears nothing of the other end" for end in ends if _is_deaf(end)]
        seen = "; ".join(["the other end's router has not answered for 5 s", *silent])
        return Finding(kind, "False", "NoAnswer", f"{seen}; {_WHAT_TO_DO}")
    return Finding(kind, "Unknown", "NoMeasurement", "neither link agents nor front routers tell anything of the line")


_WHAT_TO_DO: Final = "requests wait; ask who leases the line, and look at routes and firewalls at both ends"


def echoed_lately(peer: Peer) -> bool:
    """What an agent keeps of a peer that is silent now is of before."""
    return any(_recent(echoes.last_echo_seconds_ago) for echoes in peer.classes)


def _echoed(document: Measurements) -> bool:
    return any(map(echoed_lately, document.peers))


def _is_deaf(end: End) -> bool:
    return bool(end.measurements) and not any(_hears(each) or _echoed(each) for each in end.measurements)


def _sends(document: Measurements) -> bool:
    return any(echoes.sent for peer in document.peers for echoes in peer.classes)


def _hears(document: Measurements) -> bool:
    return any(_recent(heard.last_heard_seconds_ago) for heard in document.heard)


def _recent(age: int | None) -> bool:
    return age is not None and age <= DEAD_SECONDS
