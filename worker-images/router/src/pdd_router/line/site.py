"""A main-decode site, reached through its main router only."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout

from pdd_router import config, sse, timeouts
from pdd_router.engines.client import Delta, Forwarded, chunks, expect_ok, failures_named
from pdd_router.errors import UnavailableError, UpstreamError
from pdd_router.line.headers import CACHED_HEADER, ENGINE_HEADER, SECONDS_HEADER
from pdd_router.line.round_trip import RoundTrips

# P keeps a lease for 30 s until its reader begins to renew it. A pull that the main router would hand to MD later than
# this is refused there: P may have given the blocks away, and MD would read somebody else's.
LEASE_USABLE_SECONDS = 20.0


@dataclass(frozen=True)
class Leased:
    """A prompt whose KV an engine keeps for one reader; `at` is when, by this process's monotonic clock."""

    token_ids: list[int]
    kv_transfer_params: dict[str, Any]
    cache_salt: str | None
    at: float


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
        self.known = known
        self.round_trips = RoundTrips()

    @property
    def name(self) -> str:
        return self.known.name

    async def ping(self) -> None:
        """One empty call. Raises UpstreamError when the site does not answer."""
        began = monotonic()
        async with self._call("GET", "/pdd/v1/ping", "ping", None, timeouts.CONTROL) as response:
            there = orjson.loads(await response.read())["clock"]
        # The earliest that `there` can have been: a lease then ends too early by a round trip at most, never too late.
        self._clock_ahead = there - monotonic()
        self.round_trips.answered(monotonic() - began, now=monotonic())

    async def pull(self, prompt: Leased, *, request_id: str) -> Pulled:
        """Returns when an MD of the site holds the prompt's KV."""
        body = {"request_id": request_id, "prompt": self._told(prompt)}
        async with self._call("POST", "/pdd/v1/pull", request_id, body, timeouts.WHOLE_ANSWER) as response:
            answer = orjson.loads(await response.read())
        return Pulled(answer["engine"], answer["cached_tokens"], answer["seconds"])

    async def generate(
        self,
        *,
        request_id: str,
        engine: str,
        token_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        cache_salt: str | None,
    ) -> AsyncGenerator[Delta, None]:
        """Goes on from `token_ids` (prompt and eager tokens) on the engine that pulled the prompt's KV."""
        body = {
            "request_id": request_id,
            "engine": engine,
            "token_ids": token_ids,
            "sampling_params": sampling_params,
            "cache_salt": cache_salt,
        }
        async with self._call("POST", "/pdd/v1/generate", request_id, body, timeouts.STREAM) as response:
            async for payload in sse.events(response.content):
                event = orjson.loads(payload)
                if "error" in event:
                    raise UpstreamError(self.name, event["error"]["message"])
                yield Delta(event["token_ids"], event["finish_reason"], event["stop_reason"])

    @asynccontextmanager
    async def answer(
        self, route: str, prompts: Sequence[Leased], body: Mapping[str, Any], *, request_id: str
    ) -> AsyncIterator[tuple[Pulled, Forwarded]]:
        """Pulls the prompts' KV and asks the same engine's own OpenAI endpoint, `route` being `chat/completions` or
        `completions`. The answer goes on as it is, errors too."""
        asked = {"request_id": request_id, "prompts": [self._told(prompt) for prompt in prompts], "body": body}
        async with failures_named(self.name):
            response = await self._session.post(
                self._url(f"/pdd/v1/answer/{route}"),
                data=orjson.dumps(asked),
                headers=_headers(request_id),
                timeout=timeouts.ENDPOINT,
            )
        try:
            about = response.headers
            if ENGINE_HEADER not in about:  # it did not come as far as asking the engine
                async with failures_named(self.name):
                    await expect_ok(response, self.name)
                raise UpstreamError(self.name, f"answered without {ENGINE_HEADER}")
            pulled = Pulled(about[ENGINE_HEADER], int(about[CACHED_HEADER]), float(about[SECONDS_HEADER]))
            yield pulled, Forwarded(response.status, about["Content-Type"], chunks(self.name, response))
        finally:
            response.close()

    @asynccontextmanager
    async def _call(
        self, method: str, path: str, request_id: str, body: Mapping[str, Any] | None, limits: ClientTimeout
    ) -> AsyncIterator[ClientResponse]:
        try:
            async with (
                failures_named(self.name),
                self._session.request(
                    method,
                    self._url(path),
                    data=orjson.dumps(body) if body is not None else None,
                    headers=_headers(request_id),
                    timeout=limits,
                ) as response,
            ):
                await expect_ok(response, self.name)
                yield response
        except UpstreamError:
            self._address += 1  # the next call tries the site's next address
            raise

    def _told(self, prompt: Leased) -> dict[str, Any]:
        return {
            "token_ids": prompt.token_ids,
            "kv_transfer_params": prompt.kv_transfer_params,
            "cache_salt": prompt.cache_salt,
            "usable_until": prompt.at + LEASE_USABLE_SECONDS + self._clock_ahead,
        }

    def _url(self, path: str) -> str:
        if not self.known.addresses:
            raise UnavailableError(f"site {self.name} has no address yet; see the deployment's condition LinkReady")
        addresses = self.known.addresses
        return f"http://{addresses[self._address % len(addresses)]}{path}"


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "X-Request-Id": request_id}
