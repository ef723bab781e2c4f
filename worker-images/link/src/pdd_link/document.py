"""`/v1/measurements`: what this agent measured, for the operator. A change of its shape is a new version.

Counts and times are of the last `windowSeconds`. Ages are whole seconds, round trips whole microseconds, percentages
decimals in strings. Null is "not known".
"""

from decimal import Decimal
from time import monotonic
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from pdd_link.agent import Agent
from pdd_link.classes import ECHOES
from pdd_link.measure.echoes import WINDOW_SECONDS, Loss, Summary
from pdd_link.measure.hearing import Heard
from pdd_link.packet import Lane
from pdd_link.probe.peer import PeerProbe
from pdd_link.probe.router import Result, RouterProbe

ClassName = Literal["EF", "CS1"]


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class HeardDocument(_Model):
    """The other end's requests, as they came in here: that direction of the line, whether our own works or not."""

    received: int
    loss_percent: str | None
    """By gaps in the sequence. Null when nothing came: then compare with what the other end `sent`."""
    remarked: int
    """Came in another class than they were sent in."""
    last_heard_seconds_ago: int | None


class HeardClass(HeardDocument):
    traffic_class: ClassName


class RoundTripMicros(_Model):
    p50: int
    p99: int


class ClassDocument(_Model):
    """A peer's echoes in one class. `sent` counts those that were answered or are overdue."""

    traffic_class: ClassName
    sent: int
    echoed: int
    round_trip_micros: RoundTripMicros | None
    jitter_micros: int | None
    loss_percent: str | None
    forward_loss_percent: str | None
    """To the peer, by its own count; null while its echoes do not tell."""
    return_loss_percent: str | None
    last_echo_seconds_ago: int | None
    heard: HeardDocument
    """Of this peer."""


class PathMTUDocument(_Model):
    """Bytes with the IP header."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    bytes: int | None
    """The largest that came back in full size. Null: none yet, or not even 1280."""
    expected_bytes: int
    full_size_passes: bool | None
    forward_bytes: int | None
    """The largest that the peer says it received. More than `bytes`: this direction passes more, the fault is in the
    other. Null while nothing comes back: see what the peer has as `returnBytes`."""
    return_bytes: int | None
    """The largest of the peer's that was received here; likewise."""
    measured_seconds_ago: int | None


class RouterDocument(_Model):
    """The last handshake with the router of this peer's site."""

    result: Result
    message: str
    micros: int
    tls: bool
    measured_seconds_ago: int


class PeerDocument(_Model):
    site: str
    host: str
    probe_port: int
    measuring_for_seconds: int
    classes: list[ClassDocument]
    path_mtu: PathMTUDocument | None
    router: RouterDocument | None


class Measurements(_Model):
    version: Literal[1] = 1
    link: str
    site: str
    incarnation: str
    """New with each start of the agent."""
    window_seconds: int
    heard: list[HeardClass]
    """Of all agents of the other end, also those that are no peer yet."""
    peers: list[PeerDocument]


def measurements(agent: Agent) -> Measurements:
    return Measurements(
        link=agent.link,
        site=agent.site,
        incarnation=agent.identity.incarnation.hex(),
        window_seconds=round(WINDOW_SECONDS),
        heard=[_heard_class(lane, agent.responder.heard(lane)) for lane in ECHOES],
        peers=[_peer(agent, probe) for probe in agent.peers],
    )


def _peer(agent: Agent, probe: PeerProbe) -> PeerDocument:
    return PeerDocument(
        site=probe.peer.site,
        host=probe.peer.host,
        probe_port=probe.peer.probe_port,
        measuring_for_seconds=round(probe.age),
        classes=[_class(agent, probe, lane) for lane in ECHOES],
        path_mtu=_path_mtu(agent, probe),
        router=_router(agent.router_of(probe.peer)),
    )


def _class(agent: Agent, probe: PeerProbe, lane: Lane) -> ClassDocument:
    echoes = probe.echoes[lane]
    summary = echoes.summary(monotonic())
    return ClassDocument(
        traffic_class=lane.name,
        sent=summary.sent,
        echoed=summary.echoed,
        round_trip_micros=_round_trip(summary),
        jitter_micros=_micros(summary.jitter),
        loss_percent=percent(summary.loss),
        forward_loss_percent=percent(summary.forward),
        return_loss_percent=percent(summary.back),
        last_echo_seconds_ago=_age(echoes.last_at),
        heard=_heard(agent.heard_from(probe, lane)),
    )


def _round_trip(summary: Summary) -> RoundTripMicros | None:
    p50, p99 = _micros(summary.p50), _micros(summary.p99)
    return None if p50 is None or p99 is None else RoundTripMicros(p50=p50, p99=p99)


def _path_mtu(agent: Agent, probe: PeerProbe) -> PathMTUDocument | None:
    known = probe.path_mtu
    if known is None:
        return None
    return PathMTUDocument(
        bytes=known.passes,
        expected_bytes=known.ceiling,
        full_size_passes=known.full_size_passes,
        forward_bytes=probe.forward_largest if known.passes else None,
        return_bytes=agent.heard_from(probe, Lane.FULL_SIZE).largest or None,
        measured_seconds_ago=_age(probe.full_size_at),
    )


def _router(probe: RouterProbe | None) -> RouterDocument | None:
    if probe is None or probe.last is None or probe.last_at is None:
        return None
    last = probe.last
    return RouterDocument(
        result=last.result,
        message=last.message,
        micros=round(last.seconds * 1e6),
        tls=last.tls,
        measured_seconds_ago=round(monotonic() - probe.last_at),
    )


def _heard(heard: Heard) -> HeardDocument:
    return HeardDocument(
        received=heard.received,
        loss_percent=percent(heard.loss),
        remarked=heard.remarked,
        last_heard_seconds_ago=_age(heard.last_at),
    )


def _heard_class(lane: Lane, heard: Heard) -> HeardClass:
    return HeardClass(traffic_class=lane.name, **_heard(heard).model_dump())


def percent(loss: Loss | None) -> str | None:
    """A decimal with at most three places; None of nothing."""
    if loss is None or not loss.of:
        return None
    return f"{(Decimal(100 * loss.lost) / loss.of).quantize(Decimal('0.001')).normalize():f}"


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _age(at: float | None) -> int | None:
    return None if at is None else round(monotonic() - at)
