"""A simulated engine, renderer and site, for what real ones cannot be made to do on demand.

Its next token depends on every token before it, so that a lost, doubled or reordered token at a handoff
changes all that follow. It keeps leases like P and refuses to decode from KV that it was never given.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

VOCABULARY = 1000
KV_BYTES_PER_TOKEN = 1000
BLOCK = 32


def next_token(ids: Sequence[int]) -> int:
    state = 7
    for token in ids:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """What one engine alone answers."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


def as_text(ids: Sequence[int]) -> str:
    return "".join(f" {token}" for token in ids)


@dataclass
class SimulatedEngine:
    """P, RLD or MD. Seconds are how slow it pretends to be."""

    role: str
    pull_seconds: float = 0.0
    token_seconds: float = 0.0
    dies_after_tokens: int | None = None
    finish_late_seconds: float | None = None
    completions_end: str = ""
    """How a streamed answer of its own endpoint ends: killed, error, abort, cut; empty: as it should."""
    fails_pull: bool = False
    running: int = 0
    most_running: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/pdd/v1/facts", self._facts),
                web.post("/inference/v1/generate", self._generate),
                web.post("/v1/completions", self._completions),
            ]
        )
        return app

    async def _facts(self, http: web.Request) -> web.Response:
        del http
        return web.json_response(
            {
                "role": self.role,
                "model": "m",
                "revision": "",
                "served_model_name": "m",
                "vllm_version": "0",
                "dtype": "float32",
                "block_size": BLOCK,
                "max_model_len": 4096,
                "kv_bytes_per_token": KV_BYTES_PER_TOKEN,
            }
        )

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        body = orjson.loads(await http.read())
        self.requests.append(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(http, body)
        finally:
            self.running -= 1

    async def _answer(self, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        prompt, params = body["token_ids"], body["sampling_params"]
        kv = body["kv_transfer_params"] or {}
        given_back: dict[str, Any] | None = None
        if kv.get("do_remote_decode"):
            lease = len(self.requests)
            given_back = {"do_remote_prefill": True, "lease": lease, "remote_num_tokens": len(prompt)}
        if kv.get("do_remote_prefill"):
            await asyncio.sleep(self.pull_seconds)
            if self.fails_pull:
                return web.json_response({"error": {"message": "the line is gone"}}, status=500)
            if kv["remote_num_tokens"] != len(prompt):
                return web.json_response({"error": {"message": "wrong prompt length"}}, status=500)
        made = continuation(prompt, params.get("max_tokens", 500))  # ... and fills the context without a limit
        if not body["stream"]:
            usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": len(made)}
            usage["prompt_tokens_details"] = {"cached_tokens": 0}
            choice = {"token_ids": made, "finish_reason": "length", "stop_reason": None}
            return web.json_response({"choices": [choice], "usage": usage, "kv_transfer_params": given_back})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for position, token in enumerate(made):
            if position == self.dies_after_tokens:
                raise ConnectionResetError("killed")
            await asyncio.sleep(self.token_seconds)
            last = position + 1 == len(made) and self.finish_late_seconds is None
            choice = {"token_ids": [token], "finish_reason": "length" if last else None, "stop_reason": None}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        if self.finish_late_seconds is not None:
            await asyncio.sleep(self.finish_late_seconds)
            choice = {"token_ids": [], "finish_reason": "length", "stop_reason": None}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        """Text is the ids with spaces, as the simulated renderer has it."""
        body = orjson.loads(await http.read())
        self.requests.append(body)
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        limit = body.get("max_tokens", 16)
        choices = [
            {"index": n, "text": as_text(continuation(prompt, limit)), "finish_reason": "length"}
            for n, prompt in enumerate(prompts)
        ]
        size = sum(map(len, prompts))
        usage = {"completion_tokens": limit * len(prompts), "prompt_tokens": size, "total_tokens": 0}
        answer = {"choices": choices, "usage": usage | {"prompt_tokens_details": {"cached_tokens": size}}}
        if not body.get("stream"):
            return web.json_response(answer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        await response.write(b"data: " + orjson.dumps(answer) + b"\n\n")
        if self.completions_end == "killed":
            raise ConnectionResetError("killed")
        if self.completions_end == "error":
            await response.write(b'data: {"error": {"message": "engine trouble"}}\n\n')
        if self.completions_end == "abort":
            await response.write(b'data: {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}\n\n')
        if self.completions_end != "cut":
            await response.write(b"data: [DONE]\n\n")
        return response


@dataclass
class SimulatedRenderer:
    """Tokenizes a text of numbers, refuses an empty one as vLLM would."""

    open_sockets: int = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/completions/render", self._completions),
                web.post("/v1/chat/completions/render", self._chat),
                web.get("/pdd/v1/detokenize", self._detokenize),
            ]
        )
        return app

    @staticmethod
    def _render(text: str, body: dict[str, Any]) -> dict[str, Any]:
        ids = [int(word) for word in text.split()]
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        params: dict[str, Any] = {"temperature": 0.0}
        if limit != 16:  # vLLM leaves out what equals its default ...
            params["max_tokens"] = limit
        return {"token_ids": ids, "sampling_params": params}

    async def _completions(self, http: web.Request) -> web.Response:
        body = orjson.loads(await http.read())
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        if not all(prompts):
            error = {"message": "prompt is empty", "type": "BadRequestError", "param": "prompt", "code": 400}
            return web.json_response({"error": error}, status=400)
        return web.json_response([self._render(prompt, body) for prompt in prompts])

    async def _chat(self, http: web.Request) -> web.Response:
        body = orjson.loads(await http.read())
        return web.json_response(self._render(body["messages"][-1]["content"], body))

    async def _detokenize(self, http: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(http)
        self.open_sockets += 1
        try:
            await socket.receive_json()
            async for message in socket:
                delta = orjson.loads(message.data)
                text = "".join(f" {token}" for token in delta["token_ids"])
                await socket.send_json({"text": text, "finish_reason": delta["finish_reason"], "stop_reason": None})
        finally:
            self.open_sockets -= 1
        return socket
