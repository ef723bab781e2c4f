"""Which requests may be handed from RLD to MD in the middle of their output.

The handoff gives MD "prompt + eager tokens" as a prompt. That is exact for what is decided from the whole
sequence (greedy and unseeded sampling, repetition penalty) and for counts that the router can lower
(max_tokens, min_tokens). Whatever counts or parses *output* on one engine is not, and such a request goes
P-MD, where MD's own endpoint answers it.
"""

from collections.abc import Mapping
from typing import Any

# Fields that a handoff respects, whatever their value.
_TRANSPARENT = frozenset(
    {
        "model", "messages", "prompt", "stream", "stream_options",
        "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop_token_ids",
        "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
        "cache_salt", "user", "metadata", "store", "return_token_ids", "skip_special_tokens",
        "add_generation_prompt", "add_special_tokens", "request_id",
    }
)  # fmt: skip

# Fields that change nothing when they have one of these values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "priority": (0,),
    "stop": ([],),
    "tools": ([],),
    "tool_choice": ("none",),
    "response_format": ({"type": "text"},),
}


def blocks_handoff(body: Mapping[str, Any]) -> str | None:
    """The first field of a request body that must stay on one engine, None when a handoff is exact."""
    for field, value in body.items():
        if value is None or field in _TRANSPARENT:
            continue
        if any(_same(value, neutral) for neutral in _NEUTRAL.get(field, ())):
            continue
        return field
    if _has_media(body.get("messages")):
        return "messages with media"
    return _loosely_typed(body)


def _loosely_typed(body: Mapping[str, Any]) -> str | None:
    """A field that the router itself reads and that is not of its plain type: vLLM takes `"stream": "yes"` for true."""
    for field in ("stream", "return_token_ids"):
        if not isinstance(body.get(field), bool | None):
            return field
    options = body.get("stream_options")
    if options is not None and (not isinstance(options, Mapping) or set(options) - {"include_usage"}):
        return "stream_options"
    if options is not None and not isinstance(options.get("include_usage"), bool | None):
        return "stream_options"
    return None


def _same(value: Any, neutral: Any) -> bool:
    # `logprobs: 0` asks for the sampled token's, `logprobs: false` for none.
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _has_media(messages: Any) -> bool:
    if not isinstance(messages, list):
        return False
    return any(
        isinstance(part, Mapping) and part.get("type") not in ("text", None)
        for message in messages
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
