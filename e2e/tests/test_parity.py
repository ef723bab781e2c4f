"""A client cannot tell the endpoint from one `vllm serve`: the same requests to both, compared event by event."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from openai import NotFoundError, OpenAI

from pdd_e2e.parity import wrong
from pdd_e2e.parity.asking import Asking, Reply
from pdd_e2e.parity.catalogue import (
    CHAT,
    COUNTED_ANSWER,
    FEATURES,
    MULTI_BYTE_ANSWER,
    NOT_SERVED,
    REASONED_ANSWER,
    TEXT,
    TOOL_ANSWER,
    Disposition,
    Example,
    chat,
    text,
)
from pdd_e2e.parity.steering import MULTI_BYTE_TEXT
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

CONTENT_AFTER_REASONING = "It is four."
NOT_OPENAIS = ("allowed_token_ids", "repetition_penalty")

CUT = 3
RELAYED = {"X-PDD-Trace": "on", "X-PDD-Pipeline": "P-RLD-MD", "X-PDD-Cut": str(CUT)}
DIRECT = {"X-PDD-Trace": "on", "X-PDD-Pipeline": "P-MD"}
FREE = {"X-PDD-Trace": "on"}


@pytest.fixture(scope="module")
def asking(tiny: OpenAI, alone: OpenAI) -> Iterator[Asking]:
    asking = Asking(*(str(each.base_url).removesuffix("/v1/") for each in (tiny, alone)))
    yield asking
    print(f"\n{asking.compared} events equal")


def rows(*dispositions: Disposition) -> list[Any]:
    found = []
    for feature in FEATURES:
        if feature.disposition in dispositions:
            for place, example in enumerate(feature.examples):
                name = feature.name.replace("`", "").replace(",", "").replace(" ", "-")
                found.append(pytest.param(example, id=f"{name}-{place}"))
    return found


def bodies(example: Example) -> Iterator[dict[str, Any]]:
    """As a whole and as a stream."""
    body = example.whole()
    yield body
    yield {"stream": True} | body


def report(differences: list[str]) -> str:
    return "\n".join(differences[:12])


def streamed(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("example", rows(Disposition.TRANSPARENT, Disposition.MADE))
def test_over_the_handoff(asking: Asking, example: Example) -> None:
    for body in bodies(example):
        for headers in (RELAYED, DIRECT):
            if (headers is RELAYED and example.stays) or (headers is DIRECT and "stream" not in body):
                continue
            reply, differences = asking.differences(example.route, body, headers)
            assert not differences, report(differences)
            if reply.status == 200:
                check_trace(reply, headers)
                assert example.says in reply.text("content" if example.route == CHAT else "text")


def check_trace(reply: Reply, headers: dict[str, str]) -> None:
    """The pipeline was the one that was asked for, and with the relay both decoders spoke."""
    trace = reply.trace
    assert trace["pipeline"] == headers["X-PDD-Pipeline"]
    assert not trace["trouble"]
    if headers is DIRECT:
        assert trace["eager_tokens"] == 0
    else:
        assert trace["eager_tokens"] > 0


@pytest.mark.parametrize("example", rows(Disposition.ONE_ENGINE))
def test_on_one_engine(asking: Asking, example: Example) -> None:
    for body in bodies(example):
        reply, differences = asking.differences(example.route, body, FREE)
        assert not differences, report(differences)
        assert reply.trace["pipeline"] == "P-MD"
        assert reply.trace["reason"] == f"{example.stays} stays on one engine"
        assert reply.trace["eager_tokens"] == 0
        assert example.says in reply.text("content" if example.route == CHAT else "text")
    refused = asking.endpoint(example.route, example.whole(), RELAYED)
    assert refused.status == 400
    assert refused.events[0]["error"]["param"] == example.stays


@pytest.mark.parametrize("example", rows(Disposition.REFUSED))
def test_refused(asking: Asking, example: Example) -> None:
    if example.as_vllm:
        _, differences = asking.differences(example.route, example.whole(), FREE)
        assert not differences, report(differences)
    whole, stream = (asking.endpoint(example.route, body) for body in bodies(example))
    for reply in (whole, stream):
        error = reply.events[0]["error"]
        assert (reply.status, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert whole.events[0]["error"]["param"] == example.parameter


@pytest.mark.parametrize("route", NOT_SERVED)
def test_not_served(asking: Asking, route: str) -> None:
    reply = asking.endpoint(route, {"model": "tiny", "input": "x"})
    assert reply.status == 404
    assert set(reply.events[0]["error"]) == {"message", "type", "param", "code"}
    assert reply.events[0]["error"]["code"] == 404


# What the tokens are given to: text, stop strings, scores, the parsers. Every cut must be invisible in each.
SWEPT = {
    "plain": text({"max_tokens": 16, "return_token_ids": True}),
    "stop string": chat(COUNTED_ANSWER | {"stop": ["ive six s"]}, says="four f"),
    "logprobs": chat({"logprobs": True, "top_logprobs": 4, "max_tokens": 10}),
    "tool call": chat(TOOL_ANSWER),
    "reasoning": chat(REASONED_ANSWER, says=CONTENT_AFTER_REASONING),
    "chunks of 3": text({"max_tokens": 11, "stream_interval": 3, "return_token_ids": True}),
    "multi-byte": chat(MULTI_BYTE_ANSWER | {"logprobs": True, "top_logprobs": 1}, says=MULTI_BYTE_TEXT),
}


@pytest.mark.parametrize("name", SWEPT)
def test_no_cut_shows(asking: Asking, name: str) -> None:
    """At every position of one answer, 0 (RLD says nothing) and all (MD says nothing) included."""
    example = SWEPT[name]
    body = streamed(example.whole())
    length = asking.alone(example.route, body).usage["completion_tokens"]
    assert length >= 7
    for cut in range(length + 1):
        reply, differences = asking.differences(example.route, body, RELAYED | {"X-PDD-Cut": str(cut)})
        assert not differences, f"cut at {cut} of {length}: {report(differences)}"
        assert reply.trace["pipeline"] == "P-RLD-MD"
        assert reply.trace["eager_tokens"] == cut
        assert example.says in reply.text("content" if example.route == CHAT else "text")


def test_markup_becomes_calls_and_reasoning(asking: Asking) -> None:
    """What the sweeps rest on: there really is a tool call, and reasoning, in those answers."""
    called = asking.alone(CHAT, SWEPT["tool call"].whole()).events[0]["choices"][0]
    assert called["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"x": 4}'}
    assert called["finish_reason"] == "tool_calls"
    reasoned = asking.alone(CHAT, SWEPT["reasoning"].whole()).events[0]["choices"][0]["message"]
    assert (reasoned["reasoning"], reasoned["content"]) == ("two and two", CONTENT_AFTER_REASONING)


@pytest.mark.parametrize("name", SWEPT)
def test_a_stream_says_what_the_whole_answer_says(asking: Asking, name: str) -> None:
    example = SWEPT[name]
    whole = asking.endpoint(example.route, example.whole(), RELAYED)
    stream = asking.endpoint(example.route, streamed(example.whole()), RELAYED)
    for part in ("content", "reasoning") if example.route == CHAT else ("text",):
        assert whole.text(part) == stream.text(part)
    assert without_nulls(whole.usage) == without_nulls(stream.usage)


def without_nulls(usage: dict[str, Any]) -> dict[str, Any]:
    """vLLM's streams leave unknown counts out, its whole answers have them as null."""
    return {k: without_nulls(v) if isinstance(v, dict) else v for k, v in usage.items() if v is not None}


def test_without_headers_nothing_is_added(asking: Asking) -> None:
    """Neither header nor field says that there are several engines, and the way is the router's own choice."""
    for body in ({}, {"stream": True}):
        reply, differences = asking.differences(CHAT, chat(body).whole(), {})
        assert not differences, report(differences)
        assert not [event for event in reply.events if "pdd" in event]
        assert not [name for name in reply.headers if "pdd" in name]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_cached_tokens_are_ps_hit(asking: Asking, stream: bool) -> None:
    """A prompt of four blocks: nothing of it is known the first time, whole blocks the second, on either side."""
    body = text({"prompt": prompt(130, seed=90), "max_tokens": 4}).whole()
    body = streamed(body) if stream else body
    salted = json.dumps(body | {"cache_salt": uuid4().hex}).encode()
    hits = []
    for headers in (DIRECT, RELAYED):
        reply = asking.endpoint(TEXT, salted, headers)
        hits.append(reply.usage["prompt_tokens_details"]["cached_tokens"])
        assert reply.usage["prompt_tokens"] == 130
    alone = [asking.alone(TEXT, salted), asking.alone_again(TEXT, salted)]
    assert hits == [reply.usage["prompt_tokens_details"]["cached_tokens"] for reply in alone] == [0, 128]


def test_another_salt_shares_nothing(asking: Asking) -> None:
    body = text({"prompt": prompt(100, seed=91), "max_tokens": 4}).whole()
    for salt in (uuid4().hex, uuid4().hex):
        reply = asking.endpoint(TEXT, json.dumps(body | {"cache_salt": salt}).encode())
        assert reply.usage["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(("route", "body"), [pytest.param(r, b, id=name) for name, r, b in wrong.requests()])
def test_wrong_requests(asking: Asking, route: str, body: bytes) -> None:
    """The same status and body; where vLLM breaks (500) or leaves the API's format, a refusal in that format."""
    reply, differences = asking.differences(route, body, {})
    right = asking.alone(route, body)
    if right.status < 500 and "detail" not in right.events[0]:
        assert not differences, report(differences)
    else:
        assert reply.status == 400, reply.events
        assert set(reply.events[0]["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("content_type", wrong.CONTENT_TYPES)
def test_what_is_not_json(tiny: OpenAI, alone: OpenAI, content_type: str) -> None:
    body = json.dumps(text({"max_tokens": 2}).whole()).encode()
    headers = {"Content-Type": content_type} if content_type else {}
    mine, right = (httpx.post(f"{c.base_url}{TEXT}", content=body, headers=headers, timeout=60) for c in (tiny, alone))
    assert mine.status_code == right.status_code
    assert mine.json().get("error") == right.json().get("error")


@pytest.mark.parametrize("headers", [{}, RELAYED], ids=["as it comes", "relayed"])
def test_the_official_client(tiny: OpenAI, alone: OpenAI, headers: dict[str, str]) -> None:
    """Its typed objects, its stream of events and what it makes of errors."""
    body: dict[str, Any] = chat({}).whole()
    answers = [c.chat.completions.create(**body, extra_headers=h) for c, h in ((tiny, headers), (alone, {}))]
    assert answers[0].choices == answers[1].choices
    called: dict[str, Any] = {k: v for k, v in chat(TOOL_ANSWER).whole().items() if k not in NOT_OPENAIS}
    extra = {k: v for k, v in TOOL_ANSWER.items() if k in NOT_OPENAIS}
    calls = []
    for c, h in ((tiny, headers), (alone, {})):
        with c.chat.completions.stream(**called, extra_body=extra, extra_headers=h) as stream:
            message = stream.get_final_completion().choices[0].message
        calls.append([call.function.to_dict() for call in message.tool_calls or ()])
    assert calls[0] == calls[1] != []
    for c, h in ((tiny, headers), (alone, {})):
        with pytest.raises(NotFoundError) as caught:
            c.chat.completions.create(**body | {"model": "other"}, extra_headers=h)
        assert caught.value.body
