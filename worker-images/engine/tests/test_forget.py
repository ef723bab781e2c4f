"""Leases that a decode engine is not to read. Skipped where vLLM is not installed: run ./in-image."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

from pdd_engine.plugins.forget import MOST_KEPT, Readings, _forget_in_core, _patch


def test_what_came_is_seen_and_what_did_not_is_forgotten() -> None:
    readings = Readings()
    assert readings.may_read("read")
    assert readings.forget(["read", "unread"]) == ["unread"]
    assert not readings.may_read("unread")  # it comes after all
    assert readings.may_read("another")


def test_who_says_it_twice_hears_the_same() -> None:
    readings = Readings()
    assert readings.forget(["a"]) == readings.forget(["a"]) == ["a"]


def test_memory_is_bounded() -> None:
    readings = Readings()
    for n in range(MOST_KEPT + 5):
        readings.may_read(f"lease-{n}")
    assert readings.forget(["lease-0", f"lease-{MOST_KEPT}"]) == ["lease-0"]


def test_a_request_that_comes_late_is_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through vLLM's own scheduler side of the connector."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (  # noqa: PLC0415
        NixlPullConnectorScheduler as Scheduler,
    )

    taken: list[Any] = []
    for name, value in {"__init__": lambda _self: None, "on_new_request": lambda _self, r: taken.append(r)}.items():
        monkeypatch.setattr(Scheduler, name, value)
    monkeypatch.setattr(Scheduler, "pdd_forgets", False, raising=False)
    _patch()
    scheduler = Scheduler()
    core = SimpleNamespace(scheduler=SimpleNamespace(connector=SimpleNamespace(connector_scheduler=scheduler)))

    def request(lease: str) -> Any:
        return SimpleNamespace(kv_transfer_params={"do_remote_prefill": True, "remote_request_id": lease})

    scheduler.on_new_request(request("a"))
    assert _forget_in_core(core, ["a", "b"]) == ["b"]
    scheduler.on_new_request(request("b"))
    scheduler.on_new_request(SimpleNamespace(kv_transfer_params=None))
    assert [r.kv_transfer_params and r.kv_transfer_params["do_remote_prefill"] for r in taken] == [True, False, None]
