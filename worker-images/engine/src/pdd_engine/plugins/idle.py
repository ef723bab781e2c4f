"""An engine that waits for a transfer leaves the cores to those that compute.

Three habits of vLLM 0.32.0 with NIXL burn cores while nothing happens, and on a small machine starve its neighbours:

- NIXL's progress thread spins without a pause. Its configuration has a delay, which nixl's Python wrapper sets to 0.
- vLLM's CPU workers pin themselves to one core each, which may be the same one for two engines.
- An engine with an unread lease or a pending pull steps a thousand times a second.

The cures reach into private parts, so each is applied only to the version it was written for.
"""

import importlib
import importlib.metadata
import logging
import os
from typing import Any

from pdd_engine.plugins.version import is_our_vllm, is_release

NIXL_VERSION = "1.5"

logger = logging.getLogger("vllm.pdd.idle")


def register() -> None:
    """Called by vLLM once in each of its processes."""
    if not is_our_vllm("the engine burns cores while it waits for KV"):
        return
    _pause_nixl_progress_thread(_number("PDD_NIXL_PROGRESS_DELAY_MICROS"))
    _pause_idle_steps(_number("PDD_IDLE_STEP_MILLIS") / 1000)
    if os.environ.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind":
        _do_not_pin_cpu_workers()


def _number(variable: str) -> int:
    """A delay from the environment; 0, absent or senseless means none."""
    value = os.environ.get(variable, "0")
    if value.isdecimal():
        return int(value)
    logger.warning("%s is %r: expected a whole number; no delay", variable, value)
    return 0


def _pause_nixl_progress_thread(micros: int) -> None:
    if micros <= 0:
        return
    try:
        api: Any = importlib.import_module("nixl._api")
        version = importlib.metadata.version("nixl")
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return  # no NIXL, no thread
    if not is_release(version, NIXL_VERSION):
        logger.warning("NIXL is %s, its progress thread's delay is known for %s: not set", version, NIXL_VERSION)
        return
    if not isinstance(api.nixlBind, _DelayedBindings):
        api.nixlBind = _DelayedBindings(api.nixlBind, micros)


class _DelayedBindings:
    """nixl's binding module, but for the configuration of an agent: its thread pauses between polls."""

    def __init__(self, bindings: Any, micros: int) -> None:
        class AgentConfig(bindings.nixlAgentConfig):  # type: ignore[misc]
            @property
            def pthrDelay(self) -> int:  # noqa: N802 - NIXL's name
                return int(super().pthrDelay)

            @pthrDelay.setter
            def pthrDelay(self, value: int) -> None:  # noqa: N802
                bindings.nixlAgentConfig.pthrDelay.fset(self, max(value, micros))

        self._bindings = bindings
        self.nixlAgentConfig = AgentConfig

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bindings, name)


def _pause_idle_steps(seconds: float) -> None:
    if seconds <= 0:
        return
    from vllm.v1.engine.core import EngineCoreProc  # noqa: PLC0415

    step = EngineCoreProc._process_engine_step
    if getattr(step, "pauses_when_idle", False):
        return

    def step_and_pause(engine: Any, *args: Any, **kwargs: Any) -> Any:
        executed = step(engine, *args, **kwargs)
        # Work that no step advances: a lease that nobody has read, a pull that is under way. A new request ends
        # the pause at once.
        if not executed and engine.scheduler.has_requests():
            requests = engine.input_queue
            with requests.not_empty:
                if not requests.queue:
                    requests.not_empty.wait(seconds)
        return executed

    step_and_pause.pauses_when_idle = True  # type: ignore[attr-defined]
    EngineCoreProc._process_engine_step = step_and_pause


def _do_not_pin_cpu_workers() -> None:
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415

    CpuPlatform.discover_numa_topology = classmethod(lambda cls: [])
