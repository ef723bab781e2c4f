"""A simulated renderer: tokenizes a text of numbers, and has its engine core at the router as the real one has."""

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from pdd_e2e.simulated.engine import MODEL_FACTS, as_text

_RENDERER_FACTS = (
    "model", "revision", "served_model_name", "vllm_version", "max_model_len", "tokenizer_fingerprint",
    "adapters_fingerprint",
)  # fmt: skip


@dataclass
class SimulatedRenderer:
    facts: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies and headers of the clients' requests."""
    aborted: list[str] = field(default_factory=list)
    channels: dict[str, web.WebSocketResponse] = field(default_factory=dict)
    _works: dict[str, asyncio.Queue[dict[str, Any]]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/pdd/v1/facts", self._facts),
                web.get("/pdd/v1/core", self._core),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._completions),
            ]
        )
        return app

    async def _facts(self, http: web.Request) -> web.Response:
        del http
        facts = {field: MODEL_FACTS[field] for field in _RENDERER_FACTS}
        return web.json_response({"role": "renderer", **facts, **self.facts})

    async def _core(self, http: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(http)
        channel = http.query["channel"]
        self.channels[channel] = socket
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    for output in orjson.loads(message.data):
                        if output["id"] in self._works:
                            self._works[output["id"]].put_nowait(output)
        finally:
            del self.channels[channel]
        return socket

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        """Text is the ids with spaces. `body["stop_after"]` aborts after that many tokens, as a stop string would."""
        body = orjson.loads(await http.read())
        self.requests.append({"body": body, "headers": http.headers.copy()})
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        prompts = prompt if isinstance(prompt, list) else [prompt]
        if not all(prompts):
            error = {"message": "prompt is empty", "type": "BadRequestError", "param": "prompt", "code": 400}
            return web.json_response({"error": error}, status=400)
        session = http.headers["X-PDD-Session"]
        socket = self.channels[session.partition("/")[0]]
        works = [await self._add(socket, session, prompt, body) for prompt in prompts]
        try:
            if body.get("stream"):
                return await self._stream(http, socket, works[0], body)
            choices, cached = [], 0
            for index, work in enumerate(works):
                ids: list[int] = []
                async for output in self._outputs(work):
                    ids += output["token_ids"]
                    cached += output.get("cached_tokens") or 0
                choices.append({"index": index, "text": as_text(ids), "finish_reason": output["finish_reason"]})
            usage = {"completion_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": cached}}
            return web.json_response({"choices": choices, "usage": usage})
        except BaseException:
            await self._abort(socket, works)
            raise

    async def _add(self, socket: web.WebSocketResponse, session: str, prompt: str, body: dict[str, Any]) -> str:
        work = f"work-{next(self._numbers)}"
        self._works[work] = asyncio.Queue()
        params = {"temperature": 0.0, "max_tokens": body.get("max_tokens", 16), **body.get("sampling_params", {})}
        request = {"token_ids": [int(word) for word in prompt.split()], "sampling_params": params}
        await socket.send_str(orjson.dumps({"add": {"session": session, "id": work, "request": request}}).decode())
        return work

    async def _outputs(self, work: str) -> Any:
        while True:
            output = await self._works[work].get()
            yield output
            if output["finish_reason"] is not None:
                del self._works[work]
                return

    async def _abort(self, socket: web.WebSocketResponse, works: list[str]) -> None:
        self.aborted += works
        if not socket.closed:
            await socket.send_str(orjson.dumps({"abort": works}).decode())

    async def _stream(
        self, http: web.Request, socket: web.WebSocketResponse, work: str, body: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        made = 0
        async for output in self._outputs(work):
            made += len(output["token_ids"])
            stopped = made >= body.get("stop_after", made + 1)
            choice = {
                "index": 0,
                "text": as_text(output["token_ids"]),
                "finish_reason": "stop" if stopped else output["finish_reason"],
                "token_ids": output["token_ids"],
            }
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
            if stopped:
                await self._abort(socket, [work])
                break
        await response.write(b"data: [DONE]\n\n")
        return response
