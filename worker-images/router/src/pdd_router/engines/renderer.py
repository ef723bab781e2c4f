"""The renderer: vLLM's own request validation, chat template, tokenizer and detokenizer, without weights."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from pdd_router import timeouts
from pdd_router.engines.client import Delta, expect_ok, failures_named
from pdd_router.engines.pool import Endpoint
from pdd_router.errors import UnavailableError, UpstreamError

# vLLM resolves max_tokens when it renders, but leaves fields at their default out of the answer, and takes an absent
# max_tokens for "the rest of the context" when it generates. So absent here means this default of its SamplingParams.
_DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True)
class Rendered:
    """One prompt as ids, and the sampling parameters that vLLM resolved for it."""

    token_ids: list[int]
    sampling_params: dict[str, Any]
    cache_salt: str | None
    reasoning: bool


@dataclass(frozen=True)
class Text:
    text: str
    finish_reason: str | None
    stop_reason: str | int | None


class Detokenizer:
    """One answer's ids to text, whoever made them."""

    def __init__(self, who: str, socket: ClientWebSocketResponse):
        self._who = who
        self._socket = socket

    async def feed(self, delta: Delta) -> Text:
        async with failures_named(self._who):
            message = {
                "token_ids": delta.token_ids,
                "finish_reason": delta.finish_reason,
                "stop_reason": delta.stop_reason,
            }
            await self._socket.send_str(orjson.dumps(message).decode())
            reply = await self._socket.receive(timeouts.DETOKENIZE_SECONDS)
        if reply.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            raise UpstreamError(self._who, "closed the detokenizer in the middle of an answer")
        answer = orjson.loads(reply.data)
        if "error" in answer:
            raise UpstreamError(self._who, answer["error"])
        return Text(answer["text"], answer["finish_reason"], answer["stop_reason"])


class Renderers:
    """The renderer pods of this site, taken in turn: they keep nothing between requests."""

    def __init__(self, session: ClientSession):
        self._session = session
        self._endpoints: list[Endpoint] = []
        self._turn = count()

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = sorted(endpoints, key=lambda e: e.name)

    @property
    def ready(self) -> bool:
        return bool(self._endpoints)

    def _take(self) -> Endpoint:
        if not self._endpoints:
            raise UnavailableError("no renderer is ready; see the deployment's status")
        return self._endpoints[next(self._turn) % len(self._endpoints)]

    async def render(self, route: str, body: Mapping[str, Any]) -> list[Rendered]:
        """`route` is `chat/completions` or `completions`. One entry for each prompt of the request.

        Raises RefusedError with vLLM's own words when the request is wrong.
        """
        endpoint = self._take()
        async with (
            failures_named(endpoint.name),
            self._session.post(
                f"{endpoint.url}/v1/{route}/render",
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                timeout=timeouts.RENDER,
            ) as response,
        ):
            await expect_ok(response, endpoint.name)
            answer = orjson.loads(await response.read())
        return [_rendered(item) for item in (answer if isinstance(answer, list) else [answer])]

    @asynccontextmanager
    async def detokenizer(self, rendered: Rendered) -> AsyncIterator[Detokenizer]:
        """For one answer. Raises UnavailableError or UpstreamError when there is nobody to make text."""
        endpoint = self._take()
        first = {"prompt_token_ids": rendered.token_ids, "sampling_params": rendered.sampling_params}
        async with failures_named(endpoint.name):
            socket = await self._session.ws_connect(f"{endpoint.url}/pdd/v1/detokenize", max_msg_size=0)
            await socket.send_str(orjson.dumps(first).decode())
        try:
            yield Detokenizer(endpoint.name, socket)
        finally:
            await socket.close()


def _rendered(item: Mapping[str, Any]) -> Rendered:
    return Rendered(
        token_ids=item["token_ids"],
        sampling_params={"max_tokens": _DEFAULT_MAX_TOKENS, **item["sampling_params"]},
        cache_salt=item.get("cache_salt"),
        reasoning=item.get("reasoning_parser_kwargs") is not None,
    )
