"""The agent as a whole: a probe for each peer and each router of the configuration, and the responder."""

import asyncio
from collections.abc import Hashable, Mapping
from itertools import count
from typing import TypeVar

import structlog

from pdd_link.config import LinkConfig, Peer, Router
from pdd_link.identity import identity
from pdd_link.keys import Keys
from pdd_link.measure.hearing import Heard
from pdd_link.measure.pace import Pace
from pdd_link.packet import Lane
from pdd_link.probe.peer import PeerProbe
from pdd_link.probe.responder import Responder
from pdd_link.probe.router import RouterProbe
from pdd_link.watch import Watched

_LOG = structlog.get_logger(__name__)

W = TypeVar("W", bound=Hashable)
P = TypeVar("P", PeerProbe, RouterProbe)


class Agent:
    """Its files are followed while it runs; the link and the site are those of its start."""

    def __init__(self, config: Watched[LinkConfig], keys: Watched[Keys]):
        self._config = config
        self._keys = keys
        self.identity = identity(config.current.link, config.current.site)
        self.link, self.site = config.current.link, config.current.site
        self.responder = Responder(self.identity, keys)
        self._streams = count()
        self._peers: dict[tuple[str, str, int], PeerProbe] = {}
        self._routers: dict[tuple[str, Router], RouterProbe] = {}
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._pace: Pace

    @property
    def peers(self) -> list[PeerProbe]:
        return list(self._peers.values())

    def router_of(self, peer: Peer) -> RouterProbe | None:
        return None if peer.router is None else self._routers.get((peer.site, peer.router))

    def heard_from(self, probe: PeerProbe, lane: Lane) -> Heard:
        return self.responder.heard_from(lane, incarnation=probe.answered_by, host=probe.host)

    async def run(self) -> None:
        """Until cancelled. A probe that fails ends the program: an agent without it would look alive."""
        async with asyncio.TaskGroup() as group:

            def follow(config: LinkConfig) -> None:
                self._follow(config, group)

            follow(self._config.current)
            group.create_task(self._config.follow(follow))
            group.create_task(self._keys.follow(lambda keys: _LOG.info("keys renewed", tls=keys.tls is not None)))

    def _follow(self, config: LinkConfig, group: asyncio.TaskGroup) -> None:
        if (config.link, config.site) != (self.link, self.site):
            _LOG.error("another link or site needs a restart", link=config.link, site=config.site)
            return
        peers = {(peer.site, peer.host, peer.probe_port): peer for peer in config.peers}
        routers = {(peer.site, peer.router): peer.router for peer in config.peers if peer.router}
        self._pace = Pace(config.bandwidth_bits_per_second, peers=max(1, len(peers)), routers=max(1, len(routers)))
        self._stop(self._peers, peers)
        self._stop(self._routers, routers)
        for where, peer in peers.items():
            if where in self._peers:
                self._peers[where].peer = peer
                continue
            probe = PeerProbe(peer, stream=next(self._streams) & 0xFFFF, identity=self.identity, keys=self._keys,
                              pace=lambda: self._pace)  # fmt: skip
            self._peers[where] = probe
            self._tasks[where] = group.create_task(probe.run())
        for of_site, router in routers.items():
            if of_site not in self._routers:
                asked = RouterProbe(of_site[0], router, keys=self._keys, pace=lambda: self._pace)
                self._routers[of_site] = asked
                self._tasks[of_site] = group.create_task(asked.run())

    def _stop(self, probes: dict[W, P], wanted: Mapping[W, object]) -> None:
        for gone in probes.keys() - wanted.keys():
            self._tasks.pop(gone).cancel()
            probes.pop(gone)
