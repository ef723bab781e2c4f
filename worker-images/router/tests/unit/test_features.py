from typing import Any

import pytest

from pdd_router.policy.features import blocks_handoff

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"temperature": 0, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}},
        {"n": 1, "presence_penalty": 0.0, "logprobs": False, "tools": [], "tool_choice": "none"},
        {"tools": None, "response_format": {"type": "text"}, "seed": None},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
    ],
)
def test_plain_requests_may_be_handed_over(extra: dict[str, Any]) -> None:
    assert blocks_handoff(CHAT | extra) is None


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
        ({"seed": 7}, "seed"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"stop": ["\n"]}, "stop"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"a_field_of_a_later_vllm": 1}, "a_field_of_a_later_vllm"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages with media"),
        ({"stream": "yes"}, "stream"),
        ({"return_token_ids": 1}, "return_token_ids"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"stream_options": {"include_usage": "true"}}, "stream_options"),
        ({"stream_options": []}, "stream_options"),
    ],
)
def test_the_rest_stays_on_one_engine(extra: dict[str, Any], named: str) -> None:
    assert blocks_handoff(CHAT | extra) == named
