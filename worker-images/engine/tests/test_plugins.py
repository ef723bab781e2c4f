"""The plugins in the vLLM that they are written for. Skipped where it is not installed: run ./in-image."""

import importlib.metadata
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

import torch
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from vllm.tokenizers import get_tokenizer
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.metrics.stats import PrefillStats

from pdd_engine.plugins import facts, idle, local_hits, version
from pdd_engine.plugins.detokenize import Answer, DetokenizePlugin, MessageError

MODEL = os.environ.get("PDD_TEST_MODEL", "/models/tiny")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return get_tokenizer(MODEL)


class TestRegistration:
    def test_vllm_finds_every_plugin(self) -> None:
        general = {point.name for point in importlib.metadata.entry_points(group="vllm.general_plugins")}
        endpoints = {point.name for point in importlib.metadata.entry_points(group="vllm.endpoint_plugins")}
        assert {"pdd_idle", "pdd_local_hits"} <= general
        assert {"pdd_facts", "pdd_detokenize"} <= endpoints

    @pytest.mark.parametrize("plugin", [idle, local_hits])
    def test_another_vllm_is_left_alone(
        self, plugin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = EngineCoreProc._process_engine_step, OutputProcessor._update_stats_from_output
        monkeypatch.setattr("vllm.__version__", "0.33.0")
        monkeypatch.setenv("PDD_IDLE_STEP_MILLIS", "10")
        with caplog.at_level(logging.WARNING, logger="vllm.pdd"):
            logging.getLogger("vllm").propagate = True
            plugin.register()
        assert before == (EngineCoreProc._process_engine_step, OutputProcessor._update_stats_from_output)
        assert "vLLM is 0.33.0, and PDD's patches are written for 0.32.0" in caplog.text

    @pytest.mark.parametrize(
        ("found", "release", "same"),
        [
            ("0.32.0", "0.32.0", True),
            ("0.32.0+cpu", "0.32.0", True),
            ("0.32.01", "0.32.0", False),
            ("1.5.1", "1.5", True),
        ],
    )
    def test_releases(self, found: str, release: str, same: bool) -> None:
        assert version.is_release(found, release) is same


class TestIdle:
    @pytest.fixture
    def step(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The patched step of an engine whose own step does nothing."""
        monkeypatch.setattr(EngineCoreProc, "_process_engine_step", lambda engine: engine.executed)
        idle._pause_idle_steps(0.2)
        return EngineCoreProc._process_engine_step

    @staticmethod
    def engine(*, executed: bool, has_requests: bool) -> Any:
        scheduler = SimpleNamespace(has_requests=lambda: has_requests)
        return SimpleNamespace(executed=executed, scheduler=scheduler, input_queue=queue.Queue())

    @pytest.mark.parametrize(
        ("executed", "has_requests", "pauses"), [(False, True, True), (True, True, False), (False, False, False)]
    )
    def test_only_a_step_that_waits_for_others_pauses(
        self, step: Any, executed: bool, has_requests: bool, pauses: bool
    ) -> None:
        started = time.monotonic()
        assert step(self.engine(executed=executed, has_requests=has_requests)) is executed
        assert (time.monotonic() - started >= 0.2) is pauses

    def test_a_new_request_ends_the_pause(self, step: Any) -> None:
        engine = self.engine(executed=False, has_requests=True)
        threading.Timer(0.02, engine.input_queue.put, ["request"]).start()
        started = time.monotonic()
        step(engine)
        assert time.monotonic() - started < 0.15

    def test_nixls_progress_thread_pauses_and_all_else_is_as_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        api = pytest.importorskip("nixl._api", reason="NIXL is not installed")
        monkeypatch.setattr(api, "nixlBind", api.nixlBind)
        bindings = api.nixlBind
        bindings = getattr(bindings, "_bindings", bindings)
        monkeypatch.setattr(api, "nixlBind", bindings)
        idle._pause_nixl_progress_thread(100)
        config = api.nixlBind.nixlAgentConfig()
        config.pthrDelay = 0
        assert config.pthrDelay == 100
        assert isinstance(config, bindings.nixlAgentConfig)
        assert api.nixlBind.nixlAgent is bindings.nixlAgent


class TestLocalHits:
    @pytest.mark.parametrize(("local", "external", "reported"), [(64, 100, 64), (0, 164, 0), (64, 0, 64)])
    def test_tokens_that_came_over_the_line_are_not_cached_tokens(
        self, monkeypatch: pytest.MonkeyPatch, local: int, external: int, reported: int
    ) -> None:
        seen = []
        monkeypatch.setattr(
            OutputProcessor,
            "_update_stats_from_output",
            lambda _self, _state, output, *_: seen.append(output.prefill_stats.num_cached_tokens),
        )
        local_hits.register()
        stats = PrefillStats()
        stats.set(num_prompt_tokens=200, num_local_cached_tokens=local, num_external_cached_tokens=external)
        output = SimpleNamespace(prefill_stats=stats)
        OutputProcessor._update_stats_from_output(None, None, output, None, None)
        assert seen == [local + external]  # vLLM's own statistics
        assert output.prefill_stats.num_cached_tokens == reported


class TestFacts:
    @pytest.mark.parametrize(
        ("use_mla", "kv_heads_per_rank", "ranks", "cache_dtype", "expected"),
        [
            (False, 3, 1, "auto", 2 * 3 * 64 * 4 * 30),
            (False, 1, 4, "auto", 2 * 1 * 64 * 4 * 30 * 4),
            (False, 3, 1, "fp8", 2 * 3 * 64 * 30),
            (True, 1, 1, "auto", 64 * 4 * 30),
        ],
    )
    def test_kv_bytes_per_token(
        self, use_mla: bool, kv_heads_per_rank: int, ranks: int, cache_dtype: str, expected: int
    ) -> None:
        model = SimpleNamespace(
            use_mla=use_mla,
            dtype=torch.float32,
            get_num_kv_heads=lambda _parallel: kv_heads_per_rank,
            get_head_size=lambda: 64,
            get_total_num_hidden_layers=lambda: 30,
        )
        config = SimpleNamespace(
            model_config=model,
            cache_config=SimpleNamespace(cache_dtype=cache_dtype),
            parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
        )
        assert facts.kv_bytes_per_token(config) == expected


def start(tokenizer: Any, prompt: str = "Say: ", **sampling: Any) -> Answer:
    return Answer(tokenizer, {"prompt_token_ids": tokenizer.encode(prompt), "sampling_params": sampling})


def ids(tokenizer: Any, text: str) -> list[int]:
    encoded: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return encoded


class TestDetokenize:
    TEXT = "Größe: 8 Äpfel, 東京, and a 🧑‍🚀 waves.\n"

    def test_the_text_does_not_depend_on_where_the_stream_is_cut(self, tokenizer: Any) -> None:
        tokens = ids(tokenizer, self.TEXT)
        for cut in range(len(tokens) + 1):
            answer = start(tokenizer)
            first = answer.add({"token_ids": tokens[:cut], "finish_reason": None})
            rest = answer.add({"token_ids": tokens[cut:], "finish_reason": "length"})
            assert first["text"] + rest["text"] == self.TEXT
            assert "�" not in first["text"]

    def test_a_stop_string_across_the_handoff(self, tokenizer: Any) -> None:
        tokens = ids(tokenizer, "one two three four five")
        for cut in range(len(tokens) + 1):
            answer = start(tokenizer, stop=["ee fo"])
            replies = [answer.add({"token_ids": tokens[:cut], "finish_reason": None})]
            if replies[0]["finish_reason"] is None:
                replies.append(answer.add({"token_ids": tokens[cut:], "finish_reason": None}))
            assert "".join(reply["text"] for reply in replies) == "one two thr"
            assert (replies[-1]["finish_reason"], replies[-1]["stop_reason"]) == ("stop", "ee fo")

    def test_a_finish_brings_what_was_held_back(self, tokenizer: Any) -> None:
        answer = start(tokenizer, stop=["never seen"])
        held = answer.add({"token_ids": ids(tokenizer, "one two"), "finish_reason": None})
        assert held["text"] == ""
        assert answer.add({"token_ids": [], "finish_reason": "length"})["text"] == "one two"

    @pytest.mark.parametrize(
        ("sampling", "stop_reason", "text"),
        [
            ({}, None, "one two"),  # the last token was a stop token
            ({"include_stop_str_in_output": True}, None, "one two three"),
            ({}, "a string", "one two three"),  # the engine matched a stop string: the token is text
        ],
    )
    def test_the_last_token_of_a_stop(
        self, tokenizer: Any, sampling: dict[str, Any], stop_reason: str | None, text: str
    ) -> None:
        answer = start(tokenizer, **sampling)
        tokens = ids(tokenizer, "one two three")
        assert len(tokens) == 3
        message = {"token_ids": tokens, "finish_reason": "stop", "stop_reason": stop_reason}
        assert answer.add(message) == {"text": text, "finish_reason": "stop", "stop_reason": stop_reason}

    def test_special_tokens_are_left_out_unless_asked_for(self, tokenizer: Any) -> None:
        message = {"token_ids": [tokenizer.eos_token_id], "finish_reason": "length"}
        assert start(tokenizer).add(message)["text"] == ""
        assert start(tokenizer, skip_special_tokens=False).add(message)["text"] == tokenizer.eos_token

    @pytest.mark.parametrize(
        ("message", "error"),
        [
            ({"finish_reason": None}, "token_ids is None: expected a list of token ids"),
            ({"token_ids": [-1]}, "token_ids is [-1]: expected a list of token ids"),
            ({"token_ids": [], "finish_reason": "abort"}, "finish_reason is 'abort': expected one of"),
        ],
    )
    def test_an_error_says_what_was_expected(self, tokenizer: Any, message: dict[str, Any], error: str) -> None:
        with pytest.raises(MessageError) as raised:
            start(tokenizer).add(message)
        assert str(raised.value).startswith(error)


class TestDetokenizeOverWebSocket:
    @pytest.fixture
    def client(self, tokenizer: Any) -> Iterator[TestClient]:
        app = FastAPI()
        DetokenizePlugin().attach_router(app)
        app.state.pdd_tokenizer = tokenizer
        with TestClient(app) as client:
            yield client

    def test_an_answer(self, client: TestClient, tokenizer: Any) -> None:
        with client.websocket_connect("/pdd/v1/detokenize") as socket:
            socket.send_json({"prompt_token_ids": [1, 2, 3], "sampling_params": {"temperature": 0.0}})
            socket.send_json({"token_ids": ids(tokenizer, "Hello"), "finish_reason": None})
            assert socket.receive_json() == {"text": "Hello", "finish_reason": None, "stop_reason": None}
            socket.send_json({"token_ids": ids(tokenizer, " world"), "finish_reason": "length"})
            assert socket.receive_json() == {"text": " world", "finish_reason": "length", "stop_reason": None}
            with pytest.raises(WebSocketDisconnect):
                socket.receive_json()

    @pytest.mark.parametrize("text", ["not json", "[]", '{"prompt_token_ids": []}', '{"prompt_token_ids": [1]}'])
    def test_an_error_is_told_and_closes(self, client: TestClient, text: str) -> None:
        with client.websocket_connect("/pdd/v1/detokenize") as socket:
            socket.send_text(text)
            assert set(socket.receive_json()) == {"error"}
            with pytest.raises(WebSocketDisconnect):
                socket.receive_json()
