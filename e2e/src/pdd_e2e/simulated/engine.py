"""A simulated engine, for what real ones cannot be made to do on demand.

Its next token depends on every token before it, so that a lost, doubled or reordered token at a handoff
changes all that follow. It keeps leases like P and refuses to decode from KV that it was never given.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict

VOCABULARY = 1000
KV_BYTES_PER_TOKEN = 1000
BLOCK = 32

MODEL_FACTS: dict[str, Any] = {
    "model": "m",
    "revision": "",
    "served_model_name": "m",
    "vllm_version": "0",
    "dtype": "float32",
    "kv_cache_dtype": "auto",
    "block_size": BLOCK,
    "max_model_len": 4096,
    "kv_bytes_per_token": KV_BYTES_PER_TOKEN,
    "kv_cache_tokens": 100_000,
    "max_num_seqs": 16,
    "position_seeds": False,
    "kv_lease_duration": 30.0,
    "weights_fingerprint": "w",
    "tokenizer_fingerprint": "t",
    "adapters_fingerprint": "",
}


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
    ends_with: str = ""
    """How a stream that dies ends: killed, error, abort, cut; empty: as it should."""
    prefill_seconds: float = 0.0
    answer_seconds: float = 0.0
    """For how long the answer of a prefill is on its way."""
    clock_ahead: float = 0.0
    core_ahead: float = 0.0
    """Of its API server's clock: a core on another host."""
    fails_pull: bool = False
    hangs: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    running: int = 0
    most_running: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[CIMultiDict[str]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/pdd/v1/facts", self._facts),
                web.post("/inference/v1/generate", self._generate),
                web.get("/pdd/v1/alive", self._alive),
                web.post("/pdd/v1/release", self._release),
                web.post("/pdd/v1/forget", self._forget),
            ]
        )
        return app

    async def _facts(self, http: web.Request) -> web.Response:
        del http
        return web.json_response({"role": self.role, **MODEL_FACTS, **self.facts})

    async def _alive(self, http: web.Request) -> web.Response:
        del http
        if self.hangs:
            await asyncio.Event().wait()
        return web.json_response({"clock": monotonic() + self.clock_ahead})

    async def _release(self, http: web.Request) -> web.Response:
        asked = orjson.loads(await http.read())["request_ids"]
        self.released += asked
        return web.json_response({"released": len(asked)})

    async def _forget(self, http: web.Request) -> web.Response:
        asked = orjson.loads(await http.read())["request_ids"]
        seen = {(request["kv_transfer_params"] or {}).get("remote_request_id") for request in self.requests}
        return web.json_response({"unseen": [each for each in asked if each not in seen]})

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        body = orjson.loads(await http.read())
        self.requests.append(body)
        number = len(self.requests)
        self.headers.append(http.headers.copy())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(http, body, number)
        finally:
            self.running -= 1

    async def _answer(self, http: web.Request, body: dict[str, Any], number: int) -> web.StreamResponse:
        prompt, params = body["token_ids"], body["sampling_params"]
        kv = body["kv_transfer_params"] or {}
        given_back: dict[str, Any] | None = None
        if self.hangs:
            await asyncio.Event().wait()
        if kv.get("do_remote_decode"):
            await asyncio.sleep(self.prefill_seconds)
            lease = f"lease-{number}"
            given_back = {"do_remote_prefill": True, "remote_request_id": lease, "remote_num_tokens": len(prompt)}
            given_back["pdd_leased_at"] = monotonic() + self.clock_ahead + self.core_ahead
            await asyncio.sleep(self.answer_seconds)
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
                return await self._die(response)
            if self.hangs:
                await asyncio.Event().wait()
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

    async def _die(self, response: web.StreamResponse) -> web.StreamResponse:
        if self.ends_with == "error":
            await response.write(b'data: {"error": {"message": "engine trouble"}}\n\n')
        elif self.ends_with == "abort":
            choice: dict[str, Any] = {"token_ids": [], "finish_reason": "abort", "stop_reason": None}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\ndata: [DONE]\n\n")
        elif self.ends_with != "cut":
            raise ConnectionResetError("killed")
        return response
