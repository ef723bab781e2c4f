"""Probes one agent of the other site: small echoes in both classes, and packets of full size."""

import asyncio
from collections.abc import Callable
from errno import errorcode
from functools import partial
from time import monotonic

import structlog

from pdd_link import metrics
from pdd_link.classes import ECHOES, TRAFFIC_CLASS
from pdd_link.config import Peer
from pdd_link.identity import Identity
from pdd_link.keys import Keys
from pdd_link.measure.echoes import LATE_SECONDS, Echoes
from pdd_link.measure.pace import Pace
from pdd_link.measure.path_mtu import PathMTU
from pdd_link.packet import NOBODY, SIZE, DroppedError, Kind, Lane, Packet, pack, unpack
from pdd_link.probe import udp
from pdd_link.probe.pause import pause
from pdd_link.watch import Watched

_LOG = structlog.get_logger(__name__)

# A silent peer gets new sockets: a translation of addresses on the way may still lead to a pod that is gone.
_REOPEN_SECONDS = 10.0


class PeerProbe:
    """`stream` tells this agent's probes apart. `pace` is asked before every probe."""

    def __init__(self, peer: Peer, *, stream: int, identity: Identity, keys: Watched[Keys], pace: Callable[[], Pace]):
        self.peer = peer
        self._stream = stream
        self._identity = identity
        self._keys = keys
        self._pace = pace
        self._askers: dict[Lane, udp.Asker] = {}
        self._sequence = dict.fromkeys(Lane, 0)
        self._waiting: tuple[int, asyncio.Future[None]] | None = None
        """The full-size packet that is on its way: its sequence, and what ends with its echo."""
        self._began = self._opened_at = monotonic()
        self._mtu = 0
        self.echoes = {lane: Echoes() for lane in ECHOES}
        self._sent = {lane: metrics.SENT.labels(**self.labels, **{"class": lane.name}) for lane in ECHOES}
        self._echoed = {lane: metrics.ECHOED.labels(**self.labels, **{"class": lane.name}) for lane in ECHOES}
        self._took = {lane: metrics.ROUND_TRIP.labels(**self.labels, **{"class": lane.name}) for lane in ECHOES}
        self.path_mtu: PathMTU | None = None
        """None until the peer has told its MTU, by any echo."""
        self.forward_largest = 0
        """Bytes: the largest full-size packet that the peer says it received in its last minute."""
        self.full_size_at: float | None = None
        """When it was last known whether one passes."""
        self.host: str | None = None
        """The peer's address, once resolved."""
        self.answered_by = NOBODY
        """The incarnation of the agent that answered last."""

    @property
    def labels(self) -> dict[str, str]:
        return {"site": self.peer.site, "peer": self.peer.address}

    @property
    def age(self) -> float:
        """Seconds since the first probe."""
        return monotonic() - self._began

    @property
    def last_echo_at(self) -> float | None:
        return max((e.last_at for e in self.echoes.values() if e.last_at is not None), default=None)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_open())
                group.create_task(self._keep_echoing())
                group.create_task(self._keep_trying_full_size())
        finally:
            self._close()
            metrics.forget(self.labels)

    async def _keep_open(self) -> None:
        reported = ""
        while True:
            try:
                await self._open()
                reported = ""
            except OSError as error:
                if str(error) != reported:
                    reported = str(error)
                    _LOG.warning("peer cannot be reached from here", peer=self.peer.address, error=reported)
            while True:
                await asyncio.sleep(_REOPEN_SECONDS)
                if monotonic() - max(self.last_echo_at or 0.0, self._opened_at) >= _REOPEN_SECONDS:
                    break

    async def _open(self) -> None:
        self._opened_at = monotonic()
        family, address = await udp.resolve(self.peer.host, self.peer.probe_port)
        self._close()
        for lane in Lane:
            self._askers[lane] = udp.Asker(family, address, TRAFFIC_CLASS[lane])
            self._askers[lane].on_arrival(partial(self._arrived, lane))
        # The kernel lowers it when it is told of a smaller one on the way, which is what is to be found out.
        self._mtu = max(self._mtu, udp.mtu_toward(family, address))
        self.host = address[0]

    def _close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers = {}

    async def _keep_echoing(self) -> None:
        while True:
            await pause(self._pace().echo_every)
            # One after the other: waking up costs more than the work, here and at the peer.
            for lane in ECHOES:
                self.echoes[lane].sent(self._sequence[lane], now=monotonic())
                self._sent[lane].inc()
                self._send(lane, SIZE)

    async def _keep_trying_full_size(self) -> None:
        while True:
            await pause(self._pace().full_size_every(self._mtu or SIZE))
            # Without an echo there is no line to judge, and no word yet of the peer's MTU.
            if self.path_mtu is not None and Lane.FULL_SIZE in self._askers and self._echoed_lately():
                await self._try_size(self.path_mtu)

    async def _try_size(self, path_mtu: PathMTU) -> None:
        size = path_mtu.next_size
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = (self._sequence[Lane.FULL_SIZE], came)
        self._send(Lane.FULL_SIZE, size - self._askers[Lane.FULL_SIZE].overhead)
        try:
            async with asyncio.timeout(LATE_SECONDS):
                await came
        except TimeoutError:
            if not self._echoed_lately():
                return
            path_mtu.missed(size)
        else:
            path_mtu.passed(size)
        finally:
            self._waiting = None
        self.full_size_at = monotonic()

    def _echoed_lately(self) -> bool:
        at = self.last_echo_at
        return at is not None and monotonic() - at < LATE_SECONDS + 2 * self._pace().echo_every

    def _send(self, lane: Lane, size: int) -> None:
        """`size` is the UDP payload's, bytes. What cannot be sent is lost, and counted."""
        request = Packet(
            Kind.REQUEST, lane, self._stream, self._identity.site, self._identity.incarnation, NOBODY,
            self._sequence[lane], 0, self._mtu, 0,
        )  # fmt: skip
        self._sequence[lane] += 1
        data = pack(request, link=self._identity.link, key=self._keys.current.probe, size=size)
        try:
            if lane not in self._askers:
                raise OSError("no socket")
            self._askers[lane].send(data)
        except OSError as error:
            metrics.UNSENT.labels(*self.labels.values(), errorcode.get(error.errno or 0, "none")).inc()

    def _arrived(self, lane: Lane, data: bytes, address: udp.Address, traffic_class: int) -> None:
        del address, traffic_class  # whose echo it is tells the packet
        try:
            reply, _ = unpack(data, link=self._identity.link, keys=self._keys.current.accepted)
            self._accept(lane, reply)
        except DroppedError as error:
            metrics.DROPPED.labels(error.reason).inc()

    def _accept(self, lane: Lane, reply: Packet) -> None:
        ours = (Kind.REPLY, lane, self._stream, self._identity.incarnation)
        if (reply.kind, reply.lane, reply.stream, reply.addressee) != ours:
            raise DroppedError("unasked")
        if lane is Lane.FULL_SIZE:
            if self._waiting is None or self._waiting[0] != reply.sequence or self._waiting[1].done():
                raise DroppedError("stale")
            self._waiting[1].set_result(None)
            self.forward_largest = reply.largest
            return
        took = self.echoes[lane].echoed(
            reply.sequence, responder=reply.sender, received=reply.received, now=monotonic()
        )
        if took is None:
            raise DroppedError("stale")
        self._took[lane].observe(took)
        self._echoed[lane].inc()
        self.answered_by = reply.sender
        ceiling = min(self._mtu, reply.mtu) if reply.mtu else self._mtu
        if ceiling and (self.path_mtu is None or self.path_mtu.ceiling != ceiling):
            self.path_mtu = PathMTU(ceiling)
