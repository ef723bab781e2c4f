"""The numbers of a line: by direction and class, rounded, and written again only when they changed notably.

Measurements jitter. A number is written again only when it left the neighbourhood of the written one: a quiet line
causes no writes.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from pdd_operator.api.wan_link import LinkPath, RoundTrip
from pdd_operator.status.link_directions import End, Report
from pdd_operator.status.measurements import ClassName, Echoes, Peer

T = TypeVar("T")
_CLASSES: Final[tuple[ClassName, ...]] = ("EF", "CS1")


def measured(ends: Sequence[End], reports: Sequence[Report]) -> list[LinkPath]:
    """The worst of what all agents of an end see; what routers see where no agent sees anything."""
    paths = [
        path
        for sender, receiver in ((ends[0], ends[1]), (ends[1], ends[0]))
        for lane in _CLASSES
        if (path := _path(sender, receiver, lane)) is not None
    ]
    known = {(path.from_, path.to) for path in paths}
    by_routers: dict[tuple[str, str], RoundTrip | None] = {}
    for report in sorted(reports, key=lambda each: (each.origin, each.peer)):
        where = report.origin, report.peer
        if where in known:
            continue
        before = by_routers.setdefault(where, None)
        if report.p50_micros is not None and report.p99_micros is not None:
            by_routers[where] = RoundTrip(
                p50=max(report.p50_micros, before.p50 if before else 0),
                p99=max(report.p99_micros, before.p99 if before else 0),
            )
    return paths + [
        LinkPath(from_=origin, to=peer, round_trip_micros=trip) for (origin, peer), trip in by_routers.items()
    ]


def settled(new: Iterable[LinkPath], written: Sequence[LinkPath], *, due: bool) -> list[LinkPath]:
    """The new numbers, rounded, where they are due and differ notably from what is written."""
    before = {_of(path): path for path in written}
    now = {_of(path): _settled(path, before.get(_of(path)), due) for path in new}
    # One that nobody could be asked about just now stays; routers' words end where agents' begin.
    agents = {(path.from_, path.to) for path in now.values() if path.jitter_micros is not None}
    kept = {key: path for key, path in before.items() if key not in now and key[:2] not in agents}
    return sorted((now | kept).values(), key=lambda path: (path.from_, path.to, _CLASSES.index(path.traffic_class)))


def _of(path: LinkPath) -> tuple[str, str, str]:
    return path.from_, path.to, path.traffic_class


def _path(sender: End, receiver: End, lane: ClassName) -> LinkPath | None:
    peers = [peer for each in sender.measurements for peer in each.peers]
    echoes = [each for peer in peers for each in peer.classes if each.traffic_class == lane]
    trips = [each.round_trip_micros for each in echoes if each.round_trip_micros is not None]
    if not echoes:
        return None
    return LinkPath(
        from_=sender.cluster,
        to=receiver.cluster,
        traffic_class=lane,
        round_trip_micros=RoundTrip(p50=max(t.p50 for t in trips), p99=max(t.p99 for t in trips)) if trips else None,
        jitter_micros=max((each.jitter_micros for each in echoes if each.jitter_micros is not None), default=None),
        loss_percent=_worst_loss(echoes),
        mtu_bytes=_smallest_mtu(peers),
    )


def _worst_loss(echoes: Sequence[Echoes]) -> str | None:
    known = [each.forward_loss_percent for each in echoes if each.forward_loss_percent is not None]
    return max(known, key=Decimal, default=None)


def _smallest_mtu(peers: Sequence[Peer]) -> int | None:
    known = [peer.path_mtu.forward_bytes for peer in peers if peer.path_mtu and peer.path_mtu.forward_bytes]
    return min(known, default=None)


def _settled(new: LinkPath, old: LinkPath | None, due: bool) -> LinkPath:
    rounded = LinkPath(
        from_=new.from_,
        to=new.to,
        traffic_class=new.traffic_class,
        round_trip_micros=_rounded_trip(new.round_trip_micros),
        jitter_micros=None if new.jitter_micros is None else _rounded(new.jitter_micros),
        loss_percent=new.loss_percent,
        mtu_bytes=new.mtu_bytes,
    )
    if old is None:
        return rounded
    # What nobody measures just now stays as it was: conditions tell whether that is recent.
    return LinkPath(
        from_=new.from_,
        to=new.to,
        traffic_class=new.traffic_class,
        round_trip_micros=_choose(rounded.round_trip_micros, old.round_trip_micros, due, _trips_near),
        jitter_micros=_choose(rounded.jitter_micros, old.jitter_micros, due, _jitters_near),
        loss_percent=_choose(rounded.loss_percent, old.loss_percent, due, _losses_near),
        mtu_bytes=_choose(rounded.mtu_bytes, old.mtu_bytes, due, lambda one, other: one == other),
    )


def _choose(new: T | None, old: T | None, due: bool, near: Callable[[T, T], bool]) -> T | None:
    if new is None or (old is not None and (not due or near(new, old))):
        return old
    return new


def _trips_near(new: RoundTrip, old: RoundTrip) -> bool:
    return _near(new.p50, old.p50, percent=10, floor=500) and _near(new.p99, old.p99, percent=50, floor=5_000)


def _jitters_near(new: int, old: int) -> bool:
    return _near(new, old, percent=100, floor=2_000)


def _losses_near(new: str, old: str) -> bool:
    return abs(Decimal(new) - Decimal(old)) <= max(Decimal("0.2"), Decimal(old) / 4)


def _near(new: int, old: int, *, percent: int, floor: int) -> bool:
    return abs(new - old) <= max(floor, old * percent // 100)


def _rounded_trip(trip: RoundTrip | None) -> RoundTrip | None:
    return None if trip is None else RoundTrip(p50=_rounded(trip.p50), p99=_rounded(trip.p99))


def _rounded(value: int) -> int:
    """Two significant digits."""
    step = int(10 ** max(0, len(str(value)) - 2))
    return (value + step // 2) // step * step
