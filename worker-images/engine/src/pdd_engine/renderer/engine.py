"""vLLM's client of an engine core, for a core that is elsewhere: `AsyncLLM` without starting an engine."""

from collections import deque
from typing import Any

from vllm.outputs import RequestOutput
from vllm.utils.async_utils import cancel_task_threadsafe
from vllm.v1.engine import async_llm
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

from pdd_engine.renderer.core import RouterCore

MOST_WAITING = 256
"""Deltas that wait for a client that reads slowly; from then on they are joined, as vLLM joins all of them."""


class OneByOne(RequestOutputCollector):  # type: ignore[misc]
    """Gives every token's delta by itself, where vLLM joins those that come faster than they are read.

    What joins here is what a router put into one message, and a client would see in its chunks where that was cut.
    """

    output: Any

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._waiting: deque[RequestOutput] = deque()

    def put(self, output: Any) -> None:
        if not self.aggregate or self.output is None or not isinstance(output, RequestOutput):
            super().put(output)
        elif len(self._waiting) < MOST_WAITING:
            self._waiting.append(output)
        else:
            self._waiting[-1].add(output, aggregate=True)

    async def get(self) -> Any:
        output = await super().get()
        self._next()
        return output

    def get_nowait(self) -> Any:
        output = super().get_nowait()
        self._next()
        return output

    def _next(self) -> None:
        if self._waiting and self.output is None:
            self.output = self._waiting.popleft()
            self.ready.set()


class _InputProcessor(InputProcessor):  # type: ignore[misc]
    """Leaves to the engines what only they know: whether a request is watermarked."""

    supports_mm_inputs = property(lambda _self: False, lambda _self, _found: None)
    """Refused in serving.py. vLLM would make up pictures to see what an encoder's cache must hold."""

    def resolve_watermarking(self, params: Any) -> bool:
        return False

    def apply_watermarking(self, params: Any, watermarking: bool) -> None:
        """Keep what the client said."""


class RouterEngine(async_llm.AsyncLLM):  # type: ignore[misc]
    """Sets what `AsyncLLM` needs to generate, and leaves all else out: its `__init__` would start an engine."""

    def __init__(self, vllm_config: Any, renderer: Any, core: RouterCore) -> None:
        async_llm.RequestOutputCollector = OneByOne
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.scheduler_config = vllm_config.scheduler_config
        self.observability_config = vllm_config.observability_config
        self.renderer = renderer
        self.engine_core = core
        self.input_processor = _InputProcessor(vllm_config, renderer)
        self.output_processor = OutputProcessor(
            renderer.tokenizer, log_stats=False, stream_interval=vllm_config.scheduler_config.stream_interval
        )
        self.log_requests = self.log_stats = False
        self.logger_manager = self.admission_stats = self.output_handler = self.profiler = None

    def shutdown(self, timeout: float | None = None) -> None:
        """vLLM calls this in a thread when the pod is asked to leave, and stops its server only after it.

        The server then closes the channels, and with them ends what has not been answered.
        """
        self.engine_core.drain(timeout or 0)

    def __del__(self) -> None:
        if handler := getattr(self, "output_handler", None):
            cancel_task_threadsafe(handler)
