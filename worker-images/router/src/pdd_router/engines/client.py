"""One engine: vLLM's token-in, token-out API and our facts route."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout
from pydantic import ValidationError

from pdd_router import sse, timeouts
from pdd_router.engines.facts import Facts
from pdd_router.errors import RefusedError, UnavailableError, UpstreamError

_GENERATE = "/inference/v1/generate"


@dataclass(frozen=True)
class Delta:
    """Tokens that an engine made, and whether and why it stopped with them."""

    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True)
class Generated:
    """A whole, non-streamed answer of an engine."""

    token_ids: list[int]
    cached_tokens: int
    kv_transfer_params: dict[str, Any] | None


@dataclass(frozen=True)
class Forwarded:
    """An answer that is passed on byte for byte."""

    status: int
    content_type: str
    chunks: AsyncIterator[bytes]


async def chunks(who: str, response: ClientResponse) -> AsyncIterator[bytes]:
    async with failures_named(who):
        async for chunk in response.content.iter_any():
            yield chunk


async def expect_ok(response: ClientResponse, who: str) -> None:
    """Raises RefusedError for what vLLM says the client did wrong, UpstreamError for the rest."""
    if response.status == 200:
        return
    text = await response.text()
    if 400 <= response.status < 500:
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError:
            answer = None
        if isinstance(answer, dict) and "error" in answer:
            raise RefusedError(response.status, answer)
    raise UpstreamError(who, f"HTTP {response.status}: {text[:300]}")


@asynccontextmanager
async def failures_named(who: str) -> AsyncIterator[None]:
    """Turns transport failures into UpstreamError, which says who failed."""
    try:
        yield
    except TimeoutError as error:
        raise UpstreamError(who, "no answer in time") from error
    except (ClientError, EOFError, OSError) as error:
        raise UpstreamError(who, f"{type(error).__name__}: {error}") from error


class Engine:
    """A ready engine. `in_flight` counts the calls that it works on for this router."""

    def __init__(self, session: ClientSession, name: str, url: str):
        self.name = name
        self.url = url
        self.in_flight = 0
        self._facts: Facts | None = None
        self._session = session

    @property
    def known(self) -> bool:
        return self._facts is not None

    @property
    def facts(self) -> Facts:
        """Raises UnavailableError before the engine has told them."""
        if self._facts is None:
            raise UnavailableError(f"engine {self.name} has not told its facts yet")
        return self._facts

    async def learn(self) -> None:
        """Fetches the facts once. Raises UpstreamError while the engine cannot tell them."""
        async with (
            failures_named(self.name),
            self._session.get(f"{self.url}/pdd/v1/facts", timeout=timeouts.CONTROL) as response,
        ):
            await expect_ok(response, self.name)
            try:
                self._facts = Facts.model_validate_json(await response.read())
            except ValidationError as error:
                raise UpstreamError(self.name, f"facts of another version? {error}") from None

    async def generate(
        self,
        *,
        request_id: str,
        token_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        kv_transfer_params: Mapping[str, Any] | None = None,
        cache_salt: str | None = None,
    ) -> Generated:
        body = _body(token_ids, sampling_params, kv_transfer_params, cache_salt)
        async with self._call(_GENERATE, request_id, body, timeouts.WHOLE_ANSWER) as response:
            answer = orjson.loads(await response.read())
        choice = answer["choices"][0]
        _refuse_broken(self.name, choice["finish_reason"])
        details = answer["usage"].get("prompt_tokens_details") or {}
        return Generated(choice["token_ids"], details.get("cached_tokens") or 0, answer["kv_transfer_params"])

    async def stream(
        self,
        *,
        request_id: str,
        token_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        kv_transfer_params: Mapping[str, Any] | None = None,
        cache_salt: str | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Closing the generator closes the connection, which makes vLLM abort the request."""
        body = _body(token_ids, sampling_params, kv_transfer_params, cache_salt) | {"stream": True}
        async with self._call(_GENERATE, request_id, body, timeouts.STREAM) as response:
            async for payload in sse.events(response.content):
                yield parse_delta(self.name, payload)

    @asynccontextmanager
    async def forward(self, path: str, request_id: str, body: Mapping[str, Any]) -> AsyncIterator[Forwarded]:
        """A call of another route of the engine, whose answer goes on as it is, errors too."""
        async with self._post(path, request_id, body, timeouts.ENDPOINT) as response:
            yield Forwarded(response.status, response.headers["Content-Type"], chunks(self.name, response))

    @asynccontextmanager
    async def _call(
        self, path: str, request_id: str, body: Mapping[str, Any], limits: ClientTimeout
    ) -> AsyncIterator[ClientResponse]:
        async with self._post(path, request_id, body, limits) as response, failures_named(self.name):
            await expect_ok(response, self.name)
            yield response

    @asynccontextmanager
    async def _post(
        self, path: str, request_id: str, body: Mapping[str, Any], limits: ClientTimeout
    ) -> AsyncIterator[ClientResponse]:
        """Leaving it closes the connection unless the answer was read to its end."""
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
        self.in_flight += 1
        try:
            async with failures_named(self.name):
                response = await self._session.post(
                    self.url + path, data=orjson.dumps(body), headers=headers, timeout=limits
                )
            async with response:
                yield response
        finally:
            self.in_flight -= 1


def parse_delta(who: str, payload: bytes) -> Delta:
    """Raises UpstreamError for an error inside the stream and for an answer that the engine gave up."""
    event = orjson.loads(payload)
    refuse_broken_chunk(who, event)
    choice = event["choices"][0]
    return Delta(choice["token_ids"], choice["finish_reason"], choice["stop_reason"])


def refuse_broken_chunk(who: str, event: Mapping[str, Any]) -> None:
    """Raises UpstreamError for a chunk that says that the rest will not come."""
    if "error" in event:
        error = event["error"]
        raise UpstreamError(who, str(error.get("message", error) if isinstance(error, Mapping) else error))
    for choice in event.get("choices", ()):
        _refuse_broken(who, choice.get("finish_reason"))


def _refuse_broken(who: str, finish_reason: str | None) -> None:
    # vLLM ends requests with 200 and one of these when it shuts down or loses a KV transfer.
    if finish_reason in ("abort", "error"):
        raise UpstreamError(who, f"ended the request with finish_reason {finish_reason!r}")


def _body(
    token_ids: Sequence[int],
    sampling_params: Mapping[str, Any],
    kv_transfer_params: Mapping[str, Any] | None,
    cache_salt: str | None,
) -> dict[str, Any]:
    return {
        "token_ids": token_ids,
        "sampling_params": sampling_params,
        "kv_transfer_params": kv_transfer_params,
        "cache_salt": cache_salt,
        "stream": False,
    }
