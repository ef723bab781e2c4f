"""One request from its body to its last byte. Reads as the story of a request."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from time import time
from typing import Any

import orjson
from aiohttp import web

from pdd_router.config import FrontConfig
from pdd_router.engines.client import refuse_broken_chunk
from pdd_router.engines.renderer import Rendered, Renderers, Text
from pdd_router.errors import ApiError, UpstreamError
from pdd_router.front.answers import ChatShape, CompletionShape, Identity, Shape, Usage
from pdd_router.front.outbound import Outbound
from pdd_router.front.pipelines import Pipelines, Prefilled, Token
from pdd_router.front.record import Record
from pdd_router.front.requests import ClientRequest
from pdd_router.line.site import Site
from pdd_router.line.sites import Sites
from pdd_router.policy.pipeline import Choice, Observed, Pipeline, choose


class Server:
    """Answers requests with the pipelines of one deployment."""

    def __init__(self, renderers: Renderers, pipelines: Pipelines, sites: Sites):
        self._renderers = renderers
        self._pipelines = pipelines
        self._sites = sites

    async def answer(
        self, out: Outbound, request: ClientRequest, config: FrontConfig, record: Record
    ) -> web.StreamResponse:
        """Raises ApiError; `out` knows whether anything has been sent by then."""
        prompts = await self._renderers.render(request.route, request.body)
        record.prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        site = self._sites.take()
        prefilled = [await self._pipelines.prefill(prompt, record) for prompt in prompts]
        choice = self._choose(request, prompts, prefilled, site, config)
        record.pipeline, record.reason = choice.pipeline, choice.reason
        record.predicted_transfer = choice.predicted_seconds
        if choice.pipeline is Pipeline.RELAY:
            return await self._relayed(
                out=out,
                request=request,
                prompt=prompts[0],
                prefilled=prefilled[0],
                site=site,
                config=config,
                record=record,
            )
        return await self._direct(out=out, request=request, prefilled=prefilled, site=site, record=record)

    def _choose(
        self,
        request: ClientRequest,
        prompts: list[Rendered],
        prefilled: list[Prefilled],
        site: Site,
        config: FrontConfig,
    ) -> Choice:
        cannot_hand_off = request.cannot_hand_off
        if len(prompts) > 1:
            cannot_hand_off = "a batch of prompts"
        elif prompts[0].reasoning:
            cannot_hand_off = "reasoning"
        if request.forced is Pipeline.RELAY and cannot_hand_off is not None:
            raise ApiError(400, f"P-RLD-MD was forced, but {cannot_hand_off} must stay on one engine")
        facts = prefilled[0].engine.facts
        observed = Observed(
            prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
            cached_at_prefill=sum(done.cached_tokens for done in prefilled),
            kv_bytes_per_token=facts.kv_bytes_per_token,
            block_size=facts.block_size,
            bits_per_second=site.known.bandwidth_bits_per_second,
            round_trip_seconds=site.round_trips.percentile(50) or 0.0,
        )
        return choose(
            observed,
            tolerated_wait_seconds=config.routing.tolerated_wait_millis / 1e3,
            forced=request.forced,
            cannot_hand_off=cannot_hand_off,
            relay_there=self._pipelines.relay_there,
        )

    async def _direct(
        self,
        *,
        out: Outbound,
        request: ClientRequest,
        prefilled: list[Prefilled],
        site: Site,
        record: Record,
    ) -> web.StreamResponse:
        """P-MD: once MD holds the KV, its own endpoint answers, whatever the request asks for."""
        cached = sum(done.cached_tokens for done in prefilled)
        async with self._pipelines.direct(site, request, prefilled, record) as answer:
            if not answer.content_type.startswith("text/event-stream"):
                body = _whole_body(answer.status, b"".join([chunk async for chunk in answer.chunks]), site)
                record.token_out()
                _note_whole(body, cached, record)
                return out.whole(body | _trace(request, record), answer.status)
            async for payload in _payloads(answer.chunks, site):
                record.token_out()
                if record.main_first_token is None:
                    record.main_first_token = record.now()
                await out.event(_note_chunk(payload, cached, request, record))
        return await _end(out, request, record)

    async def _relayed(
        self,
        *,
        out: Outbound,
        request: ClientRequest,
        prompt: Rendered,
        prefilled: Prefilled,
        site: Site,
        config: FrontConfig,
        record: Record,
    ) -> web.StreamResponse:
        shape = _shape(request, config, record)
        prompt_ids = prompt.token_ids if request.return_token_ids else None
        said = _Said()
        async with (
            self._renderers.detokenizer(prompt) as detokenizer,
            aclosing(self._pipelines.relay(site, prompt, prefilled, record)) as tokens,
        ):
            async for token in tokens:
                text = await detokenizer.feed(token.delta)
                first = record.first_token is None
                record.token_out()
                record.finish_reason = text.finish_reason
                said.add(token, text)
                if not request.stream:
                    continue
                for chunk in shape.opening(prompt_ids) if first else ():
                    await out.event(chunk)
                ids = token.delta.token_ids if request.return_token_ids else None
                await out.event(_traced(shape.chunk(text, ids), request, token.by))
        usage = Usage(record.prompt_tokens, record.output_tokens, prefilled.cached_tokens)
        if not request.stream:
            ids = said.ids if request.return_token_ids else None
            return out.whole(shape.whole(said.text, usage, prompt_ids, ids) | _trace(request, record))
        if request.include_usage:
            await out.event(shape.usage_chunk(usage))
        return await _end(out, request, record)


class _Said:
    """The answer so far."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.text = Text("", None, None)

    def add(self, token: Token, text: Text) -> None:
        self.ids.extend(token.delta.token_ids)
        self.text = Text(self.text.text + text.text, text.finish_reason, text.stop_reason)


def _shape(request: ClientRequest, config: FrontConfig, record: Record) -> Shape:
    chat = request.route == "chat/completions"
    prefix = "chatcmpl" if chat else "cmpl"
    identity = Identity(f"{prefix}-{record.request_id}", int(time()), config.model)
    return ChatShape(identity) if chat else CompletionShape(identity)


async def _payloads(chunks: AsyncIterator[bytes], site: Site) -> AsyncIterator[bytes]:
    """Raises UpstreamError when the stream ends without `[DONE]`: what came is not the whole answer."""
    buffer = b""
    done = False
    async for chunk in chunks:
        buffer += chunk
        *events, buffer = buffer.split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data:").strip()
            if payload == b"[DONE]":
                done = True
            else:
                yield payload
    if not done:
        raise UpstreamError(site.name, "the answer ended in the middle")


def _whole_body(status: int, raw: bytes, site: Site) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise UpstreamError(site.name, f"HTTP {status}: {raw[:300].decode(errors='replace')}")
    return body


def _note_whole(body: dict[str, Any], cached: int, record: Record) -> None:
    if usage := body.get("usage"):
        _true_hit(usage, cached)
        record.main_tokens = usage["completion_tokens"]
        record.finish_reason = body["choices"][0]["finish_reason"]


def _note_chunk(payload: bytes, cached: int, request: ClientRequest, record: Record) -> bytes:
    """MD's own chunk, but for the hit in its usage and the trace. Only those are taken apart."""
    chunk = orjson.loads(payload)
    refuse_broken_chunk(record.main_engine or "main decode", chunk)
    for choice in chunk.get("choices", ()):
        record.finish_reason = choice["finish_reason"] or record.finish_reason
        record.main_tokens += 1 if choice.get("text") or choice.get("delta", {}).get("content") else 0
    usage = chunk.get("usage")
    if usage:
        _true_hit(usage, cached)
        record.main_tokens = usage["completion_tokens"]
    if not usage and not request.trace:
        return payload
    return orjson.dumps(_traced(chunk, request, "MD"))


def _true_hit(usage: dict[str, Any], cached: int) -> None:
    # MD found the whole prompt in its cache, because it had just been put there. What a single engine
    # would have found is what P found.
    if usage.get("prompt_tokens_details"):
        usage["prompt_tokens_details"]["cached_tokens"] = cached


def _traced(chunk: dict[str, Any], request: ClientRequest, by: str) -> dict[str, Any]:
    return chunk | {"pdd": {"by": by}} if request.trace else chunk


def _trace(request: ClientRequest, record: Record) -> dict[str, Any]:
    return {"pdd": record.fields() | {"total": record.now()}} if request.trace else {}


async def _end(out: Outbound, request: ClientRequest, record: Record) -> web.StreamResponse:
    if request.trace:
        await out.event({"object": "pdd.trace", "choices": [], **_trace(request, record)})
    return await out.end()
