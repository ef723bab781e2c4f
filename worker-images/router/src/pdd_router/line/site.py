"""A main-decode site, reached through its main router only."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout

from pdd_router import config, sse, timeouts
from pdd_router.engines.client import Delta, Forwarded, chunks, expect_ok, failures_named
from pdd_router.errors import UnavailableError, UpstreamError
from pdd_router.line.round_trip import RoundTrips


@dataclass(frozen=True)
class Pulled:
    """MD holds a prompt's KV. `cached_tokens` is what it held before."""

    engine: str
    cached_tokens: int
    seconds: float


class Site:
    """Calls of a main router. Each is stateless; leaving one early aborts what it started."""

    def __init__(self, session: ClientSession, known: config.Site):
        self._session = session
        self._address = 0
        self.known = known
        self.round_trips = RoundTrips()

    @property
    def name(self) -> str:
        return self.known.name

    async def ping(self) -> None:
        """One empty call. Raises UpstreamError when the site does not answer."""
        async with self._call("GET", "/pdd/v1/ping", "ping", None, timeouts.CONTROL) as response:
            await response.read()

    async def pull(
        self,
        *,
        request_id: str,
        token_ids: Sequence[int],
        kv_transfer_params: Mapping[str, Any],
        cache_salt: str | None,
    ) -> Pulled:
        """Returns when an MD of the site holds the KV of the prompt that `kv_transfer_params` lease."""
        body = {
            "request_id": request_id,
            "token_ids": token_ids,
            "kv_transfer_params": kv_transfer_params,
            "cache_salt": cache_salt,
        }
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
    async def proxy(
        self, *, route: str, request_id: str, engine: str, body: Mapping[str, Any]
    ) -> AsyncIterator[Forwarded]:
        """The engine's own OpenAI endpoint, `route` being `chat/completions` or `completions`."""
        async with failures_named(self.name):
            response = await self._session.post(
                self._url(f"/pdd/v1/proxy/{route}"),
                data=orjson.dumps({"engine": engine, "body": body}),
                headers=_headers(request_id),
                timeout=timeouts.STREAM,
            )
        try:
            yield Forwarded(response.status, response.headers["Content-Type"], chunks(self.name, response))
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

    def _url(self, path: str) -> str:
        if not self.known.addresses:
            raise UnavailableError(f"site {self.name} has no address yet; see the deployment's condition LinkReady")
        addresses = self.known.addresses
        return f"http://{addresses[self._address % len(addresses)]}{path}"


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "X-Request-Id": request_id}
