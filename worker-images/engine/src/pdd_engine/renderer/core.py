"""What vLLM takes for its engine core: requests go to the router that they came from, outputs come back from it.

vLLM's output processor gets one token for each output, however many the router put into a message. So stop strings,
chunks and counts are those of one engine that steps token by token, and do not tell where one engine took over from
another.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.metrics.stats import PrefillStats

from pdd_engine.renderer import session, wire

logger = logging.getLogger("vllm.pdd.renderer")


class Channel:
    """What waits to be sent to one router, and the requests that it serves."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: set[str] = set()
        self.is_open = True
        self._messages: list[str] = []
        self._ready = asyncio.Event()

    def send(self, message: str) -> None:
        self._messages.append(message)
        self._ready.set()

    def end(self) -> None:
        self.is_open = False
        self._ready.set()

    async def to_send(self) -> list[str]:
        """Waits for messages; there are none once the channel has ended."""
        await self._ready.wait()
        self._ready.clear()
        messages, self._messages = self._messages, []
        return messages if self.is_open else []


@dataclass(slots=True)
class _Open:
    """A request whose outputs are awaited."""

    channel: Channel
    prompt: list[int]
    logprobs: int | None
    prompt_logprobs: int | None
    started: bool = False
    prefill: dict[str, Any] = field(default_factory=dict)
    """What belongs to the first token: fields of EngineCoreOutput."""


class RouterCore:
    """The part of `EngineCoreClient` that `AsyncLLM` uses to generate."""

    def __init__(self, served_model_name: str, vocabulary: int) -> None:
        self.resources = SimpleNamespace(engine_dead=False)
        self._served_model_name = served_model_name
        self._vocabulary = vocabulary
        self._channels: dict[str, Channel] = {}
        self._requests: dict[str, _Open] = {}
        self._outputs: list[EngineCoreOutput] = []
        self._ready = asyncio.Event()

    # --- the channels -------------------------------------------------------------------------------------------

    def is_open(self, name: str) -> bool:
        return name in self._channels

    def open(self, name: str) -> Channel:
        """A router that comes again under a name has lost its old connection, whether or not that shows here yet."""
        if old := self._channels.get(name):
            self.close(old)
        channel = self._channels[name] = Channel(name)
        return channel

    def close(self, channel: Channel) -> None:
        channel.end()
        if self._channels.get(channel.name) is channel:
            del self._channels[channel.name]
        for request_id in list(channel.ids):
            self._fail(request_id)

    def receive(self, channel: Channel, text: str) -> None:
        """Take a router's outputs. MessageError if the message as a whole makes no sense."""
        outputs = wire.outputs(text)
        for output in outputs:
            request = self._requests.get(output.id)
            if request is None or request.channel is not channel:
                continue  # aborted meanwhile
            try:
                self._outputs += self._steps(request, output)
            except wire.MessageError as error:
                logger.error("Channel %s: output of %s: %s", channel.name, output.id, error)
                channel.send(wire.abort([output.id]))
                self._fail(output.id)
                continue
            if output.finish_reason is not None:
                self._forget(output.id)
        if outputs:
            self._ready.set()

    def _steps(self, request: _Open, output: wire.Output) -> list[EngineCoreOutput]:
        """One output of an engine for each token."""
        token_ids, logprobs = output.token_ids, None
        if not request.started:
            self._take_prefill(request, output)
        if token_ids and max(token_ids) >= self._vocabulary:
            raise wire.MessageError(f"token {max(token_ids)} is not in the vocabulary of {self._vocabulary}")
        if request.logprobs is not None:
            logprobs = self._logprobs(request.logprobs, output)
        finish_reason = wire.FINISH_REASONS[output.finish_reason] if output.finish_reason else None
        if not token_ids and finish_reason is None:
            return []  # nothing that a client would see
        prefill, request.prefill = request.prefill, {}
        steps = [EngineCoreOutput(output.id, [token_id]) for token_id in token_ids]
        if logprobs is not None:
            for step, row in zip(steps, logprobs, strict=True):
                step.new_logprobs = row
        if not steps:
            steps = [EngineCoreOutput(output.id, [])]
        for name, value in prefill.items():
            setattr(steps[0], name, value)
        if finish_reason is not None:
            steps[-1].finish_reason = finish_reason
            steps[-1].stop_reason = output.stop_reason
        return steps

    def _take_prefill(self, request: _Open, output: wire.Output) -> None:
        request.started = True
        if output.cached_tokens is not None:
            # How many tokens an engine newly put into its cache is not known here: nothing is said about it.
            request.prefill["prefill_stats"] = PrefillStats(
                num_prompt_tokens=len(request.prompt),
                num_cached_tokens=output.cached_tokens,
                num_local_cached_tokens=output.cached_tokens,
                num_cache_creation_tokens=None,
            )
        if request.prompt_logprobs is not None and output.finish_reason != "error":
            if output.prompt_logprobs is None:
                raise wire.MessageError("the first output has no prompt_logprobs, which were asked for")
            if any(max(scores) >= self._vocabulary for scores in output.prompt_logprobs if scores):
                raise wire.MessageError(f"prompt_logprobs has tokens outside the vocabulary of {self._vocabulary}")
            request.prefill["new_prompt_logprobs_tensors"] = wire.prompt_logprobs(
                output.prompt_logprobs, request.prompt, request.prompt_logprobs
            )

    def _logprobs(self, asked: int, output: wire.Output) -> list[Any]:
        scores = output.logprobs or []
        if len(scores) != len(output.token_ids):
            raise wire.MessageError(f"logprobs has {len(scores)} entries for {len(output.token_ids)} tokens")
        for token_id, score in zip(output.token_ids, scores, strict=True):
            if score.token_id != token_id:
                raise wire.MessageError(f"logprobs is of token {score.token_id} where the token is {token_id}")
            if any(candidate.token_id >= self._vocabulary for candidate in score.top_logprobs):
                raise wire.MessageError(f"top_logprobs has tokens outside the vocabulary of {self._vocabulary}")
        return [wire.sample_logprobs(score, asked) for score in scores]

    def _fail(self, request_id: str) -> None:
        """vLLM answers with its own error: 500, or an error event in a stream."""
        self._forget(request_id)
        self._outputs.append(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR))
        self._ready.set()

    def _forget(self, request_id: str) -> Channel | None:
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        request.channel.ids.discard(request_id)
        return request.channel

    # --- what AsyncLLM calls ------------------------------------------------------------------------------------

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """Never raises: vLLM has the request on its books already, and an error output takes it off again."""
        params = request.sampling_params
        try:
            name = session.current.get()
            channel = self._channels.get(session.channel_of(name))
            if channel is None:
                self._fail(request.request_id)
                return
            model = request.lora_request.lora_name if request.lora_request else self._served_model_name
            message = wire.add(name, request, model)
        except Exception:
            logger.exception("Request %s cannot be sent to a router", request.request_id)
            self._fail(request.request_id)
            return
        self._requests[request.request_id] = _Open(
            channel, request.prompt_token_ids, params.logprobs, params.prompt_logprobs
        )
        channel.ids.add(request.request_id)
        channel.send(message)

    async def abort_requests_async(self, request_ids: Iterable[str]) -> None:
        gone: dict[Channel, list[str]] = {}
        for request_id in request_ids:
            if channel := self._forget(request_id):
                gone.setdefault(channel, []).append(request_id)
        for channel, ids in gone.items():
            channel.send(wire.abort(ids))

    async def get_output_async(self) -> EngineCoreOutputs:
        await self._ready.wait()
        self._ready.clear()
        outputs, self._outputs = self._outputs, []
        return EngineCoreOutputs(outputs=outputs)

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    async def add_lora_async(self, lora_request: Any) -> bool:
        return True  # the engines have the adapter; here only its name is known

    # --- leaving ------------------------------------------------------------------------------------------------

    def drain(self, timeout: float) -> None:
        """Wait in another thread for the answers that are under way."""
        deadline = time.monotonic() + timeout
        while self._requests and time.monotonic() < deadline:
            time.sleep(0.05)

    def shutdown(self, timeout: float | None = None) -> None:
        """Nothing of the router's is ended from here."""
