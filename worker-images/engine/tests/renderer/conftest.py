"""A renderer as vLLM builds it, in this process, with a router that plays recorded ids.

vLLM is imported by those who use the fixtures: these files are collected where it is not installed, too.
"""

import asyncio
import itertools
import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

MODEL = Path(os.environ.get("PDD_TEST_MODEL", "/models/tiny"))
ADDED = ("<tool_call>", "</tool_call>", "<think>", "</think>")
SESSION = "router-1/7"

Output = dict[str, Any]
Play = Callable[[dict[str, Any]], Sequence[Sequence[Output]]]
"""From the message that adds a request to what is sent for it: messages, each a list of outputs without their id."""


def record(
    add: dict[str, Any], token_ids: Sequence[int], finish: str = "length", stop: int | None = None
) -> list[Output]:
    """An answer as an engine that steps token by token gives it: with what the request asked for."""
    params, prompt = add["request"]["sampling_params"], add["request"]["token_ids"]
    outputs: list[Output] = [{"token_ids": [token_id]} for token_id in token_ids]
    if (asked := params.get("logprobs")) is not None:
        for position, (output, token_id) in enumerate(zip(outputs, token_ids, strict=True)):
            output["logprobs"] = [scores(token_id, position, asked)]
    outputs[0]["cached_tokens"] = 32
    if (asked := params.get("prompt_logprobs")) is not None:
        outputs[0]["prompt_logprobs"] = [None]
        for position, token_id in enumerate(prompt[1:]):
            entries = candidates(token_id, position, asked)
            outputs[0]["prompt_logprobs"].append({
                str(each["token_id"]): {"logprob": each["logprob"], "rank": each["rank"], "decoded_token": None}
                for each in entries
            })  # fmt: skip
    outputs[-1] |= {"finish_reason": finish, "stop_reason": stop}
    return outputs


def candidates(token_id: int, position: int, asked: int) -> list[dict[str, Any]]:
    """The token itself, which is the likeliest, second, third or seventh in turn, and those asked for, by rank."""
    rank = (1, 2, 3, 7)[position % 4]
    others = [each for each in range(1000 + position, 1100 + position) if each != token_id]
    ranked = [*others[: rank - 1], token_id, *others[rank - 1 :]]
    entries = [{"token_id": each, "logprob": -0.5 * place, "rank": place} for place, each in enumerate(ranked, 1)]
    return [entries[rank - 1], *(each for each in entries[:asked] if each["token_id"] != token_id)]


def scores(token_id: int, position: int, asked: int) -> dict[str, Any]:
    entries = candidates(token_id, position, asked)
    return entries[0] | {"top_logprobs": entries[: max(asked, 1)]}


def split(items: Sequence[Any], cuts: Iterable[int]) -> list[Sequence[Any]]:
    places = sorted({place for place in cuts if 0 < place < len(items)})
    return [items[start:end] for start, end in itertools.pairwise((0, *places, len(items)))]


def joined(outputs: Sequence[Output]) -> Output:
    """One output that says what several say one after the other."""
    answer = dict(outputs[0])
    for output in outputs[1:]:
        for name, value in output.items():
            answer[name] = answer[name] + value if name in ("token_ids", "logprobs") else value
    return answer


@dataclass
class Asked:
    """What a client got, and what the router saw meanwhile."""

    status: int
    text: str
    adds: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the last is [DONE], which is checked and left out."""
        data = [event.removeprefix("data: ") for event in self.text.split("\n\n") if event]
        assert data[-1] == "[DONE]", self.text
        return [json.loads(event) for event in data[:-1]]


class Renderer:
    """vLLM's application with the plugin, on an event loop of its own."""

    def __init__(self, model: Path, *arguments: str) -> None:
        self.model = model
        self.loop = asyncio.new_event_loop()
        self.app = self.run(build(model, *arguments))
        self.core = self.app.state.pdd_core
        self.tokenizer = self.app.state.online_renderer.renderer.get_tokenizer()

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        if handler := self.app.state.engine_client.output_handler:
            handler.cancel()
            self.run(asyncio.gather(handler, return_exceptions=True))
        self.loop.close()

    def ids(self, text: str) -> list[int]:
        token_ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return token_ids

    def chat(self, play: Play, **body: Any) -> Asked:
        return self.ask(
            "/v1/chat/completions", play, {"messages": [{"role": "user", "content": "Say something."}]} | body
        )

    def complete(self, play: Play, **body: Any) -> Asked:
        return self.ask("/v1/completions", play, {"prompt": "Say: "} | body)

    def ask(self, path: str, play: Play, body: Any, *, session: str = SESSION) -> Asked:
        asked: Asked = self.run(self._ask(path, play, body, session))
        return asked

    async def _ask(self, path: str, play: Play, body: Any, session: str) -> Asked:
        asked = Asked(0, "")
        channel = self.core.open("router-1")
        router = asyncio.create_task(self._route(channel, play, asked))
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://renderer") as client:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                headers = {"x-pdd-session": session, "x-request-id": "q", "content-type": "application/json"}
                response = await client.post(path, content=content, headers=headers, timeout=60)
            asked.status, asked.text = response.status_code, response.text
            await asyncio.sleep(0)  # the router sees what was sent last
        finally:
            self.core.close(channel)
            await router
        assert not self.app.state.engine_client.output_processor.request_states
        return asked

    async def _route(self, channel: Any, play: Play, asked: Asked) -> None:
        while messages := await channel.to_send():
            for message in map(json.loads, messages):
                asked.aborted += message.get("abort", [])
                if add := message.get("add"):
                    asked.adds.append(add)
                    for frame in play(add):
                        outputs = [{"id": add["id"]} | output for output in frame]
                        self.core.receive(channel, json.dumps(outputs))
                        for _ in range(2):
                            await asyncio.sleep(0)


async def build(model: Path, *arguments: str) -> Any:
    """As `vllm launch render` does."""
    from vllm.config import VllmConfig  # noqa: PLC0415
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
    from vllm.entrypoints.launchers.app import build_app  # noqa: PLC0415
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415
    from vllm.entrypoints.launchers.render.app_state import init_render_app_state  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    from pdd_engine.renderer.plugin import RendererPlugin  # noqa: PLC0415

    args: Namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([
        "--model", str(model), "--served-model-name", "assistant", "--max-model-len", "2048", "--dtype", "float32",
        "--enable-prompt-tokens-details", *arguments,
    ])  # fmt: skip
    engine_args = AsyncEngineArgs.from_cli_args(args)
    config = VllmConfig(
        model_config=engine_args.create_model_config(),
        logging_config=engine_args.create_logging_config(),
        structured_outputs_config=engine_args.create_structured_outputs_config(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vllm.plugins.load_endpoint_plugins", lambda _tasks: [RendererPlugin()])
        app = build_app(args, ("render",))
    await init_render_app_state(config, app.state, args)
    return app


@pytest.fixture(scope="session")
def tools() -> Any:
    """This module: test modules cannot import it."""
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    renderer = Renderer(MODEL)
    yield renderer
    renderer.close()


@pytest.fixture(scope="session")
def parsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renderer]:
    """With parsers of tool calls and of reasoning, and a tokenizer that has their marks."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    model = tmp_path_factory.mktemp("model")
    for name in ("config.json", "generation_config.json"):
        shutil.copy(MODEL / name, model)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_tokens(list(ADDED))
    tokenizer.save_pretrained(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": len(tokenizer)}))
    renderer = Renderer(
        model,
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "hermes",
        "--reasoning-parser",
        "qwen3",
        "--enable-lora",
        "--lora-modules",
        "tuned=/nowhere",
    )
    yield renderer
    renderer.close()
