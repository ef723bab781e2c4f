"""OpenAI's two answer shapes, streamed and whole, from one stream of texts.

Field for field what vLLM 0.32 sends, so that a client cannot tell a handed-over answer from another.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pdd_router.engines.renderer import Text


@dataclass(frozen=True)
class Identity:
    """What every part of one answer repeats. `created` is in seconds of the epoch."""

    id: str
    created: int
    model: str


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Shape(ABC):
    """Chat or completions. `ids` are None unless the client asked for `return_token_ids`."""

    kind: ClassVar[str]

    def __init__(self, identity: Identity):
        self._identity = identity

    @abstractmethod
    def opening(self, prompt_ids: Sequence[int] | None) -> list[dict[str, Any]]:
        """Chunks before the first token."""

    @abstractmethod
    def chunk(self, text: Text, ids: Sequence[int] | None) -> dict[str, Any]: ...

    @abstractmethod
    def whole(
        self, text: Text, usage: Usage, prompt_ids: Sequence[int] | None, ids: Sequence[int] | None
    ) -> dict[str, Any]: ...

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return self._chunk([]) | {"usage": usage.body()}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        who = self._identity
        return {
            "id": who.id,
            "object": self.kind,
            "created": who.created,
            "model": who.model,
            "choices": choices,
        }


class ChatShape(Shape):
    kind = "chat.completion.chunk"

    def opening(self, prompt_ids: Sequence[int] | None) -> list[dict[str, Any]]:
        delta = {"role": "assistant", "content": ""}
        chunk = self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])
        return [chunk | {"prompt_token_ids": prompt_ids}]

    def chunk(self, text: Text, ids: Sequence[int] | None) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {"content": text.text},
            "logprobs": None,
            "finish_reason": text.finish_reason,
            "token_ids": ids,
        }
        if text.finish_reason is not None:
            choice["stop_reason"] = text.stop_reason
        return self._chunk([choice])

    def whole(
        self, text: Text, usage: Usage, prompt_ids: Sequence[int] | None, ids: Sequence[int] | None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": text.text,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
                "reasoning": None,
            },
            "logprobs": None,
            "finish_reason": text.finish_reason,
            "stop_reason": text.stop_reason,
            "token_ids": ids,
        }
        return self._chunk([choice]) | {
            "object": "chat.completion",
            "usage": usage.body(),
            "prompt_logprobs": None,
            "prompt_token_ids": prompt_ids,
            "kv_transfer_params": None,
        }


class CompletionShape(Shape):
    kind = "text_completion"

    def opening(self, prompt_ids: Sequence[int] | None) -> list[dict[str, Any]]:
        del prompt_ids  # completions have no chunk before the first token
        return []

    def chunk(self, text: Text, ids: Sequence[int] | None) -> dict[str, Any]:
        return self._chunk([_completion_choice(text, ids)])

    def whole(
        self, text: Text, usage: Usage, prompt_ids: Sequence[int] | None, ids: Sequence[int] | None
    ) -> dict[str, Any]:
        choice = _completion_choice(text, ids) | {"prompt_logprobs": None, "prompt_token_ids": prompt_ids}
        return self._chunk([choice]) | {"usage": usage.body(), "kv_transfer_params": None}


def _completion_choice(text: Text, ids: Sequence[int] | None) -> dict[str, Any]:
    return {
        "index": 0,
        "text": text.text,
        "logprobs": None,
        "finish_reason": text.finish_reason,
        "stop_reason": text.stop_reason,
        "token_ids": ids,
    }
