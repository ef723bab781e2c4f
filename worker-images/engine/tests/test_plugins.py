"""The plugins in the vLLM that they are written for. Skipped where it is not installed: run ./in-image."""

import asyncio
import importlib.metadata
import json
import logging
import os
import queue
import threading
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

import torch
from fastapi import FastAPI
from starlette.testclient import TestClient
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.metrics.stats import PrefillStats

from pdd_engine.plugins import alive, facts, idle, lease_guard, local_hits, reconnect, release, version

MODEL = os.environ.get("PDD_TEST_MODEL", "/models/tiny")


def _patched() -> list[Any]:
    """What the plugins change."""
    return [
        EngineCoreProc._process_engine_step,
        OutputProcessor._update_stats_from_output,
        getattr(EngineCoreProc, release.UTILITY, None),
        dict(KVConnectorFactory._registry),
    ]


class TestRegistration:
    def test_vllm_finds_every_plugin(self) -> None:
        general = {point.name for point in importlib.metadata.entry_points(group="vllm.general_plugins")}
        endpoints = {point.name for point in importlib.metadata.entry_points(group="vllm.endpoint_plugins")}
        assert {"pdd_idle", "pdd_local_hits", "pdd_release", "pdd_forget"} <= general
        assert {"pdd_lease_guard", "pdd_reconnect"} <= general
        assert {"pdd_facts", "pdd_alive", "pdd_release", "pdd_forget", "pdd_renderer"} <= endpoints

    @pytest.mark.parametrize("plugin", [idle, local_hits, release, lease_guard, reconnect])
    def test_another_vllm_is_left_alone(
        self, plugin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = _patched()
        monkeypatch.setattr("vllm.__version__", "0.33.0")
        monkeypatch.setenv("PDD_IDLE_STEP_MILLIS", "10")
        with caplog.at_level(logging.WARNING, logger="vllm.pdd"):
            logging.getLogger("vllm").propagate = True
            plugin.register()
        assert before == _patched()
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

    def test_what_the_cache_holds(self) -> None:
        cache = SimpleNamespace(num_gpu_blocks=100, block_size=32, kv_cache_size_tokens=None)
        assert facts.kv_cache_tokens(cache) == 3200
        cache.kv_cache_size_tokens = 1600  # two groups of layers, each with blocks of its own
        assert facts.kv_cache_tokens(cache) == 1600

    def test_of_a_model_that_runs_here(self) -> None:
        config = EngineArgs(model=MODEL, dtype="float32", block_size=32, max_num_seqs=7).create_engine_config()
        config.cache_config.num_gpu_blocks = 10
        args = Namespace(served_model_name=None, lora_modules=None)
        answer = facts.facts(config, args, role="prefill") | facts.fingerprints(config, args)
        assert answer["kv_cache_dtype"] == "float32"
        assert answer["kv_cache_tokens"] == 320
        assert answer["max_num_seqs"] == 7
        assert answer["position_seeds"] is False  # a CPU
        assert answer["kv_lease_duration"] == 0  # no connector
        assert len({answer["weights_fingerprint"], answer["tokenizer_fingerprint"]} - {"unknown"}) == 2
        assert answer["adapters_fingerprint"] == ""

    def test_an_engine_whose_files_are_not_found_serves_all_the_same(self) -> None:
        gone = SimpleNamespace(model="/gone", revision=None, tokenizer="org/gone", tokenizer_revision=None)
        config = SimpleNamespace(model_config=gone, load_config=SimpleNamespace(download_dir=None))
        args = Namespace(lora_modules=[SimpleNamespace(name="tuned", path="/gone")])
        assert set(facts.fingerprints(config, args).values()) == {"unknown"}


class TestAlive:
    @pytest.fixture
    def core(self) -> Any:
        """An engine client whose core answers when `answers` is set."""
        core = SimpleNamespace(calls=0, answers=asyncio.Event(), error=None, errored=False)

        async def is_sleeping() -> bool:
            core.calls += 1
            await core.answers.wait()
            if core.error:
                raise core.error
            return False

        core.is_sleeping = is_sleeping
        return core

    async def test_many_callers_are_one_call(self, core: Any) -> None:
        trips = alive.RoundTrips(core.is_sleeping)
        callers = [asyncio.create_task(trips.one()) for _ in range(100)]
        await asyncio.sleep(0.01)
        for impatient in callers[:50]:
            impatient.cancel()
        await asyncio.sleep(0.01)
        assert not any(caller.done() for caller in callers[50:])
        core.answers.set()
        await asyncio.gather(*callers[50:])
        assert core.calls == 1
        await trips.one()
        assert core.calls == 2

    @pytest.mark.parametrize(
        ("error", "errored", "status"),
        [(None, False, 200), (RuntimeError("Server shutting down"), False, 200), (RuntimeError("dead"), True, 503)],
    )
    async def test_the_answer(self, core: Any, error: Exception | None, errored: bool, status: int) -> None:
        app = FastAPI()
        plugin = alive.AlivePlugin()
        plugin.attach_router(app)
        await plugin.init_state(core, app.state, Namespace())
        core.error, core.errored = error, errored
        core.answers.set()
        with TestClient(app) as client:
            response = client.get("/pdd/v1/alive")
        assert response.status_code == status
        if status == 200:
            assert 0 <= time.monotonic() - response.json()["clock"] < 60
        else:
            assert response.json()["error"]["code"] == status


class TestReleaseRoute:
    @pytest.fixture
    async def client(self) -> AsyncIterator[TestClient]:
        async def call_utility_all(name: str, ids: list[str]) -> list[int]:
            assert name == "pdd_release_leases"
            if ids == ["unknown method"]:
                raise RuntimeError("Call to pdd_release_leases method failed")
            return [len(ids), 0]

        app = FastAPI()
        plugin = release.ReleasePlugin()
        plugin.attach_router(app)
        core = SimpleNamespace(call_utility_all_async=call_utility_all)
        await plugin.init_state(SimpleNamespace(engine_core=core), app.state, Namespace())
        with TestClient(app) as client:
            yield client

    @pytest.mark.parametrize(("ids", "released"), [([], 0), (["a", "b"], 2), (["a", "a"], 1)])
    def test_an_answer(self, client: TestClient, ids: list[str], released: int) -> None:
        response = client.post("/pdd/v1/release", json={"request_ids": ids})
        assert (response.status_code, response.json()) == (200, {"released": released})

    @pytest.mark.parametrize(
        ("body", "message", "param"),
        [
            (b"", "the body is not JSON", None),
            (b"[]", "the body is a list: expected an object", None),
            (b"{}", "request_ids: expected a list of strings of 1 to 512 characters", "request_ids"),
            (b'{"request_ids": "a"}', "request_ids: expected a list", "request_ids"),
            (b'{"request_ids": [1]}', "request_ids: expected a list", "request_ids"),
            (b'{"request_ids": [""]}', "request_ids: expected a list", "request_ids"),
            (json.dumps({"request_ids": ["a"] * 1025}).encode(), "request_ids has 1025 entries", "request_ids"),
        ],
    )
    def test_a_body_that_makes_no_sense(self, client: TestClient, body: bytes, message: str, param: str | None) -> None:
        response = client.post("/pdd/v1/release", content=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, 400, param)
        assert error["type"] == "BadRequestError"
        assert error["message"].startswith(message)

    def test_a_core_that_knows_no_releases(self, client: TestClient) -> None:
        response = client.post("/pdd/v1/release", json={"request_ids": ["unknown method"]})
        assert response.status_code == 503
        assert "the engine core does not take leases" in response.json()["error"]["message"]
