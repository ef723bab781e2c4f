"""Answers the other site's probes, and remembers what it heard. Never more bytes out than in, none to a stranger."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from pdd_link import metrics
from pdd_link.classes import ECHOES, TRAFFIC_CLASS
from pdd_link.identity import Identity
from pdd_link.keys import Keys
from pdd_link.measure.hearing import Heard, Hearing, together
from pdd_link.packet import DroppedError, Kind, Lane, Packet, pack, unpack
from pdd_link.probe import udp
from pdd_link.watch import Watched

# Streams that are remembered, so that their packets are not accepted again. Two replicas have a handful.
_STREAMS = 256

# The bits of the class; the other two are the routers' to set (ECN).
_DSCP = 0xFC


@dataclass
class _Stream:
    """One probe of another agent."""

    host: str
    mtu: int
    """Towards it."""
    lanes: dict[Lane, Hearing] = field(default_factory=lambda: {lane: Hearing() for lane in Lane})


class Responder:
    def __init__(self, identity: Identity, keys: Watched[Keys]):
        self._identity = identity
        self._keys = keys
        self._streams: dict[tuple[bytes, int], _Stream] = {}
        self._listeners: list[udp.Listener] = []
        self._heard_of = {lane: metrics.HEARD.labels(lane.name) for lane in ECHOES}

    @property
    def port(self) -> int:
        return self._listeners[0].port

    def listen(self, port: int) -> None:
        """Raises OSError."""
        self._listeners = udp.listen(port)
        for listener in self._listeners:
            listener.on_arrival(partial(self._arrived, listener))

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def heard_from(self, lane: Lane, *, incarnation: bytes, host: str | None) -> Heard:
        """From the agent of an incarnation. While it is silent, as after a restart that we have not heard of, from
        whatever is at its address: where addresses are translated on the way that may be several."""
        heard = self._heard(lane, lambda sender, stream: sender == incarnation)
        return heard if heard.received else self._heard(lane, lambda sender, stream: stream.host == host)

    def heard(self, lane: Lane) -> Heard:
        """From all agents of the other site."""
        return self._heard(lane, lambda sender, stream: True)

    def _heard(self, lane: Lane, meant: Callable[[bytes, _Stream], bool]) -> Heard:
        now = monotonic()
        return together(
            stream.lanes[lane].summary(now) for (sender, _), stream in self._streams.items() if meant(sender, stream)
        )

    def _arrived(self, listener: udp.Listener, data: bytes, address: udp.Address, traffic_class: int) -> None:
        try:
            request, key = unpack(data, link=self._identity.link, keys=self._keys.current.accepted)
            stream, hearing = self._accept(listener, request, len(data), address, traffic_class)
        except DroppedError as error:
            metrics.DROPPED.labels(error.reason).inc()
            return
        lane = request.lane
        largest = hearing.summary(monotonic()).largest if lane is Lane.FULL_SIZE else 0
        reply = Packet(
            Kind.REPLY, lane, request.stream, self._identity.site, self._identity.incarnation, request.sender,
            request.sequence, hearing.received, stream.mtu, largest,
        )  # fmt: skip
        # Under the asker's own key: in the middle of a rotation it may not know ours yet.
        answer = pack(reply, link=self._identity.link, key=key, size=len(data))
        try:
            listener.answer(answer, address, TRAFFIC_CLASS[lane])
        except OSError:
            # No way back, or none for this size: the asker sees it as loss on the way back, which it is.
            metrics.DROPPED.labels("unanswerable").inc()

    def _accept(
        self, listener: udp.Listener, request: Packet, size: int, address: udp.Address, traffic_class: int
    ) -> tuple[_Stream, Hearing]:
        if request.kind is not Kind.REQUEST:
            raise DroppedError("unasked")
        if request.site == self._identity.site:
            raise DroppedError("own_site")  # sent back by somebody
        name = (request.sender, request.stream)
        stream = self._streams.pop(name, None) or _Stream(address[0], udp.mtu_toward(listener.family, address))
        self._streams[name] = stream  # the one longest silent is first
        stream.host = address[0]
        if len(self._streams) > _STREAMS:
            del self._streams[next(iter(self._streams))]
        remarked = traffic_class & _DSCP != TRAFFIC_CLASS[request.lane]
        hearing = stream.lanes[request.lane]
        size += udp.overhead(listener.family)
        if not hearing.accept(request.sequence, size=size, remarked=remarked, now=monotonic()):
            raise DroppedError("replayed")
        if request.lane in ECHOES:
            self._heard_of[request.lane].inc()
            if remarked:
                metrics.REMARKED.labels(request.lane.name).inc()
        return stream, hearing
