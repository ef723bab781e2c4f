"""All sites of a deployment: follows the configuration, pings each once a second."""

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

import structlog
from aiohttp import ClientSession

from pdd_router import config
from pdd_router.errors import ApiError, UnavailableError
from pdd_router.line.site import Site
from pdd_router.policy.compatibility import Party, form

_LOG = structlog.get_logger(__name__)
_PING_EVERY_SECONDS = 1.0


class Sites:
    def __init__(self, session: ClientSession):
        self._session = session
        self._sites: dict[str, Site] = {}

    def update(self, known: Iterable[config.Site]) -> None:
        old = self._sites
        self._sites = {}
        for site in known:
            kept = old.get(site.name) or Site(self._session, site)
            kept.known = site
            self._sites[site.name] = kept

    @property
    def reachable(self) -> list[Site]:
        now = monotonic()
        return [site for site in self._sites.values() if site.round_trips.reachable(now)]

    @property
    def engines(self) -> list[Party]:
        """All main-decode engines that the sites told of."""
        return [engine for site in self.reachable for engine in site.engines]

    def take(self, reads: Sequence[Any]) -> Site:
        """The site for a KV cache of this form. Raises UnavailableError when none answers or has an engine for it."""
        if not self.reachable:
            names = ", ".join(self._sites) or "none is configured"
            raise UnavailableError(f"no main-decode site answers ({names}): see condition Reachable of the WANLink")
        able = [site for site in self.reachable if site.engines]
        if not able:
            names = ", ".join(site.name for site in self.reachable)
            raise UnavailableError(f"no main-decode engine is ready at {names}; see the deployment's status")
        fit = [site for site in able if any(form(engine.facts) == list(reads) for engine in site.engines)]
        if not fit:
            raise UnavailableError(
                "no main-decode engine has the prefill engine's model and KV format; see condition KVCompatible"
            )
        return fit[0]

    async def ping_all(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.gather(*(self._ping(site) for site in self._sites.values()))
            for site in self._sites.values():
                if site.break_off_if_silent(monotonic()):
                    _LOG.warning("site is cut off: what waited for it goes on elsewhere", site=site.name)
            await asyncio.sleep(_PING_EVERY_SECONDS)

    async def _ping(self, site: Site) -> None:
        was = site.round_trips.reachable(monotonic())
        try:
            await site.ping()
        except ApiError as error:
            if was and not site.round_trips.reachable(monotonic()):
                _LOG.warning("site does not answer", site=site.name, error=error.message)
            return
        if not was:
            _LOG.info("site answers", site=site.name, round_trip=site.round_trips.percentile(50))

    def telemetry(self) -> list[dict[str, Any]]:
        """The `links` of `/telemetry`, as `docs/design/contracts.md` has it."""
        now = monotonic()
        return [_telemetry(site, now) for site in self._sites.values()]


def _telemetry(site: Site, now: float) -> dict[str, Any]:
    trips = site.round_trips
    p50, p99, age = trips.percentile(50), trips.percentile(99), trips.age(now)
    return {
        "link": site.known.link,
        "peer": site.name,
        "reachable": trips.reachable(now),
        "rttMicros": None if p50 is None or p99 is None else {"p50": round(p50 * 1e6), "p99": round(p99 * 1e6)},
        "samples": len(trips),
        "lastProbeAgeMillis": None if age is None else round(age * 1e3),
    }
