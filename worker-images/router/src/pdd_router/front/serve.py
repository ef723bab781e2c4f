"""One request from its body to its last byte: the renderer's answer goes to the client as it is.

The renderer is vLLM's own API server; what it says, refusals included, is what one vLLM would say. The router speaks
for itself only where the engines behind it failed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from aiohttp import ClientResponse, web

from pdd_router import sse
from pdd_router.engines.client import failures_named
from pdd_router.engines.renderers import Renderers
from pdd_router.errors import ApiError
from pdd_router.front.ask import Ask
from pdd_router.front.outbound import Outbound
from pdd_router.front.pipelines import Pipelines
from pdd_router.front.record import Record
from pdd_router.front.session import Session
from pdd_router.origin import REQUEST_ID

_DONE = b"[DONE]"


class Server:
    """Answers requests with the pipelines of one deployment."""

    def __init__(self, renderers: Renderers, pipelines: Pipelines):
        self._renderers = renderers
        self._pipelines = pipelines

    async def answer(
        self, out: Outbound, path: str, body: bytes, ask: Ask, record: Record, *, content_type: str
    ) -> web.StreamResponse:
        """Raises ApiError; `out` knows whether anything has been sent by then."""
        renderer = self._renderers.take()
        session = Session(renderer, self._pipelines, ask, record)
        headers = {"Content-Type": content_type, REQUEST_ID: record.request_id}
        asking = renderer.asked(path, body, headers, session)
        answering = asyncio.create_task(_pass_on(out, asking, renderer.name, record, with_trace=ask.trace))
        try:
            either: set[asyncio.Future[Any]] = {answering, session.failed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if session.failed.done():
                # Before the answer's own end, which cannot be right: a renderer that lost its engine core says less
                # about why than we know.
                raise session.failed.result()
            return answering.result()
        finally:
            answering.cancel()
            await asyncio.wait({answering})
            await session.close()


async def _pass_on(
    out: Outbound, asking: AbstractAsyncContextManager[ClientResponse], who: str, record: Record, *, with_trace: bool
) -> web.StreamResponse:
    async with asking as answer:
        with_trace = with_trace and answer.status == 200
        if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            async with failures_named(who):
                whole = await answer.read()
            if answer.status >= 400:
                whole = _in_api_format(answer.status, whole)
            return out.whole(_with_trace(whole, record) if with_trace else whole, answer.status)
        record.stream = True
        async with failures_named(who):
            chunks = answer.content.iter_any()
            async for chunk in _traced(chunks, record) if with_trace else chunks:
                await out.write(chunk)
        return await out.close()


def _in_api_format(status: int, body: bytes) -> bytes:
    """vLLM's refusal as it is; what its web framework refuses before vLLM sees it gets the same format."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body.decode(errors="replace")
    if isinstance(said, dict) and "error" in said:
        return body
    detail = said.get("detail", said) if isinstance(said, dict) else said
    return orjson.dumps(ApiError(status, str(detail)[:300]).body())


async def _traced(chunks: AsyncIterator[bytes], record: Record) -> AsyncIterator[bytes]:
    """The same, with who made each token where the client asked for ids, and the request's trace before the end."""
    kept, tokens = b"", 0
    async for chunk in chunks:
        *events, kept = (kept + chunk).split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data: ")
            if payload == _DONE:
                yield sse.event(orjson.dumps({"object": "pdd.trace", "choices": [], **_trace(record)}))
            elif b'"token_ids":[' in payload:
                body = orjson.loads(payload)
                tokens += sum(len(choice.get("token_ids") or ()) for choice in body.get("choices", ()))
                # Those of RLD are counted before they are passed on, and no more come once MD speaks.
                body["pdd"] = {"by": "RLD" if tokens <= record.eager_tokens else "MD"}
                event = b"data: " + orjson.dumps(body)  # noqa: PLW2901
            yield event + b"\n\n"


def _with_trace(whole: bytes, record: Record) -> bytes:
    return orjson.dumps(orjson.loads(whole) | _trace(record))


def _trace(record: Record) -> dict[str, Any]:
    return {"pdd": record.fields() | {"total": record.now()}}
