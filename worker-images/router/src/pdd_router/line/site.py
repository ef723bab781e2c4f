"""A main-decode site, reached through its main router only."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout

from pdd_router import config, sse, timeouts
from pdd_router.engines.calls import Calls
from pdd_router.engines.client import Delta, Work, expect_ok, failures_named
from pdd_router.engines.lease import Lease
from pdd_router.errors import LeaseTooOldError, OverloadedError, RefusedError, UnavailableError, UpstreamError
from pdd_router.line.round_trip import RoundTrips
from pdd_router.origin import REQUEST_ID
from pdd_router.policy.compatibility import Party


@dataclass(frozen=True)
class Pulled:
    """An MD holds the KV: `cached_tokens` it held before, the rest took `seconds`."""

    engine: str
    cached_tokens: int
    seconds: float


class Site:
    """Calls of a main router. Each is stateless; leaving one early aborts what it started."""

    def __init__(self, session: ClientSession, known: config.Site):
        self._session = session
        self._address = 0
        self._clock_ahead = 0.0
        self._calls = Calls()
        self.known = known
        self.round_trips = RoundTrips()
        self.engines: list[Party] = []
        """As of the last ping."""

    @property
    def name(self) -> str:
        return self.known.name

    async def ping(self) -> None:
        """One small call. Raises UpstreamError when the site does not answer."""
        began = monotonic()
        async with self._call("GET", "/pdd/v1/ping", {}, None, timeouts.CONTROL) as response:
            answer = orjson.loads(await response.read())
        # The earliest that `clock` can have been: a lease then ends too early by a round trip at most, never too late.
        self._clock_ahead = answer["clock"] - monotonic()
        self.engines = [Party(e["name"], self.name, "main-decode", e["facts"]) for e in answer["engines"]]
        self.round_trips.answered(monotonic() - began, now=monotonic())

    def break_off_if_silent(self, now: float) -> bool:
        """Ends the calls to a site that answers no pings any more. Returns whether there were any."""
        age = self.round_trips.age(now)
        if age is None or age < timeouts.CUT_OFF_SECONDS or not len(self._calls):
            return False
        self._calls.break_off()
        return True

    async def pull(self, work: Work, lease: Lease, *, reads: Sequence[Any], headers: Mapping[str, str]) -> Pulled:
        """Returns when an MD of the site holds the prompt's KV. `reads` is the form of P's KV cache."""
        body = {"work": work.body(), "lease": self._told(lease), "reads": reads}
        async with self._call("POST", "/pdd/v1/pull", headers, body, timeouts.WHOLE_ANSWER) as response:
            return _pulled(orjson.loads(await response.read()))

    async def generate(self, work: Work, *, engine: str, headers: Mapping[str, str]) -> AsyncGenerator[Delta, None]:
        """Goes on from the ids of `work` (prompt and eager tokens) on the engine that pulled the prompt's KV."""
        body = {"work": work.body(), "engine": engine}
        async with self._call("POST", "/pdd/v1/generate", headers, body, timeouts.STREAM) as response:
            async for payload in sse.events(response.content):
                yield self._delta(orjson.loads(payload))

    async def pull_and_generate(
        self, work: Work, lease: Lease, *, reads: Sequence[Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[Pulled | Delta, None]:
        """Both in one call, which saves the line a round trip: first what was pulled, then the answer."""
        body = {"work": work.body(), "lease": self._told(lease), "reads": reads}
        async with self._call("POST", "/pdd/v1/generate", headers, body, timeouts.PULL_AND_STREAM) as response:
            async for payload in sse.events(response.content):
                event = orjson.loads(payload)
                yield _pulled(event["pulled"]) if "pulled" in event else self._delta(event)

    async def forget(self, request_ids: Sequence[str]) -> list[str]:
        """Leases that no engine of it is to read. Returns those that none has begun to. Raises ApiError."""
        body = {"request_ids": list(request_ids)}
        async with self._call("POST", "/pdd/v1/forget", {}, body, timeouts.CONTROL) as response:
            unseen: list[str] = orjson.loads(await response.read())["unseen"]
        return unseen

    def _delta(self, event: dict[str, Any]) -> Delta:
        if "error" in event:
            raise UpstreamError(self.name, event["error"]["message"])
        return Delta(**event)

    @asynccontextmanager
    async def _call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: ClientTimeout,
    ) -> AsyncIterator[ClientResponse]:
        try:
            async with failures_named(self.name):
                request = self._session.request(
                    method,
                    self._url(path),
                    data=orjson.dumps(body) if body is not None else None,
                    headers={"Content-Type": "application/json", **headers},
                    timeout=limits,
                )
                response = await self._calls.begun(request)
                async with response:
                    with self._calls.reading(response):
                        await expect_ok(response, self.name)
                        yield response
        except RefusedError as error:
            if error.status == LeaseTooOldError.STATUS:
                raise LeaseTooOldError(headers.get(REQUEST_ID, "a request")) from None
            if error.status == OverloadedError.STATUS:
                raise OverloadedError(f"{self.name}: {error.answer['error'].get('message')}", retry_after=5) from None
            raise
        except UpstreamError:
            self._address += 1  # the next call tries the site's next address
            raise

    def _told(self, lease: Lease) -> dict[str, Any]:
        return {
            "kv_transfer_params": lease.kv_transfer_params,
            "usable_until": lease.usable_until + self._clock_ahead,
        }

    def _url(self, path: str) -> str:
        if not self.known.addresses:
            raise UnavailableError(f"site {self.name} has no address yet; see the deployment's condition LinkReady")
        addresses = self.known.addresses
        return f"http://{addresses[self._address % len(addresses)]}{path}"


def _pulled(answer: dict[str, Any]) -> Pulled:
    return Pulled(answer["engine"], answer["cached_tokens"], answer["seconds"])
