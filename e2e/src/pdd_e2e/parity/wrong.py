"""Requests that are wrong: what is said about them is part of the API."""

import json
from typing import Any

from pdd_e2e.parity.catalogue import CHAT, MODEL, TEXT, user

_PLAIN: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": [user("Say it.")], "max_tokens": 4, "temperature": 0},
    TEXT: {"model": MODEL, "prompt": "Say it", "max_tokens": 4, "temperature": 0},
}


def _deep(depth: int) -> bytes:
    return (
        b'{"model": "tiny", "prompt": "a", "max_tokens": 1, "temperature": 0, "x": '
        + b"[" * depth
        + b"]" * depth
        + b"}"
    )


def _schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


# Of both routes, over its plain body. A value of `...` takes the field away.
_FIELDS: list[dict[str, Any]] = [
    {"model": "another"}, {"model": 5}, {"model": None}, {"model": ...},
    {"max_tokens": -1}, {"max_tokens": 0}, {"max_tokens": "many"}, {"max_tokens": 5000}, {"max_tokens": 1.5},
    {"min_tokens": 9}, {"min_tokens": -1},
    {"temperature": -1}, {"temperature": "hot"}, {"temperature": 3}, {"top_p": 0}, {"top_p": 2}, {"top_k": -5},
    {"min_p": 2}, {"presence_penalty": 5}, {"frequency_penalty": -5}, {"repetition_penalty": 0},
    {"n": 0}, {"n": 2}, {"n": -1}, {"n": "two"}, {"n": 100_000, "temperature": 1}, {"seed": 2**70}, {"seed": "s"},
    {"logit_bias": {"x": 1}}, {"logit_bias": {"999999": 1}}, {"logit_bias": [1]}, {"allowed_token_ids": []},
    {"allowed_token_ids": [999_999]}, {"bad_words": [""]}, {"bad_words": "x"}, {"stop": 5}, {"stop": [""]},
    {"stop_token_ids": ["x"]}, {"prompt_logprobs": -2}, {"prompt_logprobs": 99}, {"prompt_logprobs": "x"},
    {"stream_options": {"include_usage": True}}, {"stream": "perhaps"}, {"stream": True, "stream_options": 5},
    {"priority": 1}, {"priority": "high"}, {"cache_salt": ""}, {"cache_salt": 5}, {"truncate_prompt_tokens": -5},
    {"truncate_prompt_tokens": 5000}, {"response_format": {"type": "json_schema"}}, {"response_format": {"type": "x"}},
    {"structured_outputs": {"regex": "["}}, {"structured_outputs": {"grammar": "root ::= ("}},
    {"structured_outputs": {"json": {"type": "nothing"}}}, {"structured_outputs": {"choice": []}},
    {"structured_outputs": {"regex": "a", "choice": ["b"]}}, {"structured_outputs": {}},
    {"structured_outputs": {"json": _schema(300)}}, {"thinking_token_budget": -5}, {"stream_interval": 0},
]  # fmt: skip
_CHAT: list[dict[str, Any]] = [
    {"messages": ...}, {"messages": []}, {"messages": "hi"}, {"messages": [{"content": "no role"}]},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": 5}]},
    {"messages": [user("word " * 5000)]},
    {"messages": [{"role": "user", "content": [{"type": "smell", "smell": "x"}]}]},
    {"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 99}, {"logprobs": True, "top_logprobs": -2},
    {"logprobs": "yes"}, {"tools": [], "tool_choice": "auto"}, {"tool_choice": "auto"}, {"tools": "x"},
    {"tools": [{"type": "function"}]}, {"tool_choice": {"type": "function", "function": {"name": "none"}}},
    {"tools": [{"type": "function", "function": {"name": "f"}}],
     "tool_choice": {"type": "function", "function": {"name": "g"}}},
    {"continue_final_message": True}, {"chat_template": "{{ x }}"}, {"reasoning_effort": "much"},
    {"chat_template_kwargs": "x"}, {"max_completion_tokens": 5000, "max_tokens": None},
]  # fmt: skip
_TEXT: list[dict[str, Any]] = [
    {"prompt": ...}, {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {"prompt": {"a": 1}}, {"prompt": [999_999]},
    {"prompt": [-1]}, {"prompt": list(range(1000, 6000))}, {"prompt": ["a", 5]}, {"logprobs": 99}, {"logprobs": -2},
    {"logprobs": "x"}, {"suffix": "x"},
    {"stream": True, "prompt": list(range(1000, 6000))},
]  # fmt: skip
_BYTES = {
    "not JSON": b'{"model": "tiny", "prompt": ',
    "empty": b"",
    "a list": b"[]",
    "a string": b'"hello"',
    "null": b"null",
    "no UTF-8": b'{"model": "tiny", "prompt": "\xff\xfe"}',
    "NaN": b'{"model": "tiny", "prompt": "a", "temperature": NaN}',
    "half a surrogate": b'{"model": "tiny", "prompt": "\\ud800", "max_tokens": 2, "temperature": 0}',
    "nested 200 deep": _deep(200),
    "nested 50,000 deep": _deep(50_000),
}


CONTENT_TYPES = ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", "")


def requests() -> list[tuple[str, str, bytes]]:
    """Name, route and body of each."""
    found = []
    for route, fields in ((CHAT, [*_FIELDS, *_CHAT]), (TEXT, [*_FIELDS, *_TEXT])):
        for more in fields:
            body = {key: value for key, value in (_PLAIN[route] | more).items() if value is not ...}
            name = json.dumps({key: None if value is ... else value for key, value in more.items()})
            found.append((f"{route.partition('/')[0]} {name[:60]}", route, json.dumps(body).encode()))
        found += [(f"{route.partition('/')[0]} {name}", route, body) for name, body in _BYTES.items()]
    return found
