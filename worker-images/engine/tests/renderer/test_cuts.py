"""What a client gets does not depend on how a router puts the tokens into messages, nor on which engine made them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
LETTERS = "Größe: 8 Äpfel, 東京, and a 🧑‍🚀 waves.\n"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("weather", "time")]
CALLS = (
    'I look. <tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
    '<tool_call>\n{"name": "time", "arguments": {"city": "東京"}}\n</tool_call>'
)
USAGE = {"include_usage": True}
EACH_USAGE = {"include_usage": True, "continuous_usage_stats": True}


@dataclass(frozen=True)
class Case:
    path: str
    text: str
    body: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] | None = None
    parses: bool = False
    finish: str = "length"
    aborts: bool = False
    """vLLM ends it before the engines do."""
    streams_alike: bool = True
    """vLLM says the same in a stream and without one."""

    @property
    def full(self) -> dict[str, Any]:
        prompt = (
            {"messages": [{"role": "user", "content": "Say something."}]} if self.path == CHAT else {"prompt": "Say: "}
        )
        return prompt | self.body


CASES = {
    "chat": Case(CHAT, LETTERS, options=USAGE),
    "chat with logprobs": Case(CHAT, LETTERS, {"logprobs": True, "top_logprobs": 2}),
    "chat with logprobs and none beside": Case(CHAT, LETTERS, {"logprobs": True, "top_logprobs": 0}),
    "chat of two choices": Case(CHAT, LETTERS, {"n": 2, "temperature": 1.0}, options=EACH_USAGE),
    "chat with a stop string": Case(CHAT, "one two three four five", {"stop": ["ee fo"]}, options=USAGE, aborts=True),
    "chat with a stop string shown": Case(
        CHAT, "one two three four five", {"stop": ["ee fo"], "include_stop_str_in_output": True}, aborts=True
    ),
    "chat with a stop string that never comes": Case(CHAT, LETTERS, {"stop": ["never seen"]}, options=EACH_USAGE),
    "chat with a stop string and logprobs": Case(
        CHAT, "one two three four five", {"stop": ["four"], "logprobs": True, "top_logprobs": 1}, aborts=True
    ),
    "chat with token ids": Case(CHAT, LETTERS, {"return_token_ids": True}),
    "chat that echoes": Case(
        CHAT,
        "and so on",
        {"echo": True, "add_generation_prompt": False, "messages": [{"role": "assistant", "content": "Once"}]},
    ),
    "chat that stops": Case(CHAT, "one two<|im_end|>", options=USAGE, finish="stop"),
    "chat with special tokens": Case(
        CHAT, "one<|im_start|>two<|im_end|>", {"skip_special_tokens": False}, finish="stop"
    ),
    "chat in steps of three": Case(CHAT, LETTERS, {"stream_interval": 3}),
    "completion": Case(COMPLETE, LETTERS, options=USAGE),
    "completion with logprobs": Case(COMPLETE, LETTERS, {"logprobs": 3}, options=EACH_USAGE),
    "completion with one logprob": Case(COMPLETE, LETTERS, {"logprobs": 1}),
    "completion with logprobs and none beside": Case(COMPLETE, LETTERS, {"logprobs": 0}),
    "completion with echo and logprobs": Case(COMPLETE, LETTERS, {"logprobs": 2, "echo": True, "max_tokens": 64}),
    "completion that is an echo only": Case(COMPLETE, "x", {"logprobs": 2, "echo": True, "max_tokens": 0}),
    "completion with a stop string": Case(COMPLETE, "one two three four five", {"stop": ["ee fo", "z"]}, aborts=True),
    "completions of two choices": Case(COMPLETE, LETTERS, {"n": 2, "temperature": 1.0}, options=USAGE),
    "completions of a batch": Case(
        COMPLETE, LETTERS, {"prompt": ["One", "Two, three"], "n": 2, "temperature": 1.0}, options=USAGE
    ),
    "completion of ids": Case(COMPLETE, LETTERS, {"prompt": [1, 520, 9531, 198], "return_token_ids": True}),
    "reasoning": Case(CHAT, "<think>\nWell, 東京?\n</think>\n\nTokyo 🗼.", options=EACH_USAGE, parses=True),
    "reasoning that is hidden": Case(
        CHAT, "<think>\nWell?\n</think>\n\nTokyo.", {"include_reasoning": False}, parses=True
    ),
    "reasoning that does not end": Case(CHAT, "<think>\nWell, well", parses=True, options=USAGE),
    "two tool calls": Case(CHAT, f"{CALLS}<|im_end|>", {"tools": TOOLS}, options=USAGE, parses=True, finish="stop"),
    "one tool call, asked for": Case(
        CHAT, f"{CALLS}<|im_end|>", {"tools": TOOLS, "parallel_tool_calls": False}, parses=True, finish="stop"
    ),
    "reasoning, then a tool call": Case(
        CHAT,
        f"<think>\nA call.\n</think>\n\n{CALLS}<|im_end|>",
        {"tools": TOOLS},
        options=USAGE,
        parses=True,
        finish="stop",
    ),
    "a tool call that is cut short": Case(CHAT, CALLS[:-40], {"tools": TOOLS}, parses=True, streams_alike=False),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


class Player:
    """A client's request for a case, with its answer cut as told."""

    def __init__(self, case: Case, renderer: Any, tools: Any) -> None:
        self.case, self.renderer, self.tools = case, renderer, tools
        self.token_ids = renderer.ids(case.text)

    def ask(self, *, streams: bool, cuts: Sequence[int] | None = None, frames: Sequence[int] | None = None) -> Any:
        """Without cuts: one output for each token, and one message for each output."""

        def play(add: dict[str, Any]) -> Any:
            stop = 2 if self.case.finish == "stop" else None
            outputs = self.tools.record(add, self.token_ids, self.case.finish, stop)
            if cuts is not None:
                outputs = [self.tools.joined(part) for part in self.tools.split(outputs, cuts)]
            return self.tools.split(outputs, range(len(outputs)) if frames is None else frames)

        body = self.case.full | ({"stream": True} if streams else {})
        if streams and self.case.options:
            body["stream_options"] = self.case.options
        asked = self.renderer.ask(self.case.path, play, body)
        assert asked.status == 200, asked.text
        # Where the engines' own end came in the same message as what ends it here, there is nothing to abort.
        assert asked.aborted in ([], [add["id"] for add in asked.adds if self.case.aborts])
        return asked

    def events(self, **cuts: Any) -> dict[int, list[Any]]:
        return by_choice(self.ask(streams=True, **cuts).events)

    def answer(self, **cuts: Any) -> Any:
        return comparable(self.ask(streams=False, **cuts).json)


@pytest.fixture(scope="module")
def player(case: Case, request: pytest.FixtureRequest) -> Player:
    return Player(
        case, request.getfixturevalue("parsing" if case.parses else "renderer"), request.getfixturevalue("tools")
    )


@pytest.fixture(scope="module")
def whole(player: Player) -> tuple[dict[int, list[Any]], Any]:
    """The events and the answer of an engine that steps token by token."""
    return player.events(), player.answer()


def comparable(answer: Any) -> Any:
    """Without the time, and the ids of tool calls, which are drawn."""
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    drawn = {"created"} | ({"id"} if "function" in answer else set())
    return {name: comparable(value) for name, value in answer.items() if name not in drawn}


def by_choice(events: list[Any]) -> dict[int, list[Any]]:
    """Of several choices each has its order; how they mix does not matter. -1: what belongs to none."""

    def index(event: Any) -> int:
        return event["choices"][0]["index"] if event["choices"] else -1

    return {choice: list(group) for choice, group in groupby(sorted(comparable(events), key=index), key=index)}


def test_every_cut_into_two(player: Player, whole: Any) -> None:
    for cut in range(1, len(player.token_ids)):
        assert player.events(cuts=[cut]) == whole[0], f"cut at {cut}"


CUTS = st.lists(st.integers(1, 60), max_size=20)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=CUTS, frames=CUTS)
def test_any_cut(player: Player, whole: Any, cuts: list[int], frames: list[int]) -> None:
    assert player.events(cuts=cuts, frames=frames) == whole[0]
    assert player.answer(cuts=cuts, frames=frames) == whole[1]


def test_a_stream_says_what_the_whole_answer_says(case: Case, whole: Any) -> None:
    events, answer = whole
    for choice in answer["choices"]:
        deltas = [event["choices"][0] for event in events[choice["index"]]]
        assert deltas[-1]["finish_reason"] == choice["finish_reason"]
        assert deltas[-1]["stop_reason"] == choice["stop_reason"]
        assert all(delta["finish_reason"] is None for delta in deltas[:-1])
        if case.path == COMPLETE:
            assert "".join(delta["text"] for delta in deltas) == choice["text"]
        elif case.streams_alike:
            assert message([delta["delta"] for delta in deltas]) == expected_message(choice["message"])
        assert sum_logprobs(deltas) == choice["logprobs"]
        if case.body.get("return_token_ids"):
            assert [token for delta in deltas for token in delta.get("token_ids") or []] == choice["token_ids"]
    if case.options:
        usage = events[-1][-1]["usage"]
        usage.pop("completion_tokens_details", None)  # vLLM counts the reasoning tokens of a stream by another rule
        assert usage == {name: answer["usage"][name] for name in usage} | {
            "prompt_tokens_details": {"cached_tokens": 32}
        }


def message(deltas: list[Any]) -> dict[str, Any]:
    calls: dict[int, dict[str, str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls") or []):
        known = calls.setdefault(call["index"], {"name": "", "arguments": ""})
        for name in known:
            known[name] += call["function"].get(name) or ""
    return {
        "content": "".join(delta.get("content") or "" for delta in deltas),
        "reasoning": "".join(delta.get("reasoning") or "" for delta in deltas),
        "tool_calls": [calls[index] for index in sorted(calls)],
    }


def expected_message(message: Any) -> dict[str, Any]:
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning") or "",
        "tool_calls": [
            {name: call["function"][name] for name in ("name", "arguments")} for call in message.get("tool_calls") or []
        ],
    }


def sum_logprobs(deltas: list[Any]) -> Any:
    found = [delta["logprobs"] for delta in deltas if delta.get("logprobs")]
    return {name: [each for part in found for each in part[name]] for name in found[0]} if found else None


class TestTheText:
    """Against what the tokenizer itself makes of the ids: a renderer that loses or doubles a token shows here."""

    @pytest.fixture
    def token_ids(self, renderer: Any) -> Any:
        token_ids = renderer.ids(LETTERS)
        pieces = [renderer.tokenizer.decode([each]) for each in token_ids]
        assert any("�" in piece for piece in pieces)  # characters that no token has by itself
        return token_ids

    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_letters(self, renderer: Any, tools: Any, token_ids: list[int], size: int) -> None:
        def play(add: dict[str, Any]) -> Any:
            outputs = tools.record(add, token_ids)
            return [[tools.joined(part)] for part in tools.split(outputs, range(0, 100, size))]

        asked = renderer.chat(play, stream=True)
        texts = [event["choices"][0]["delta"]["content"] for event in asked.events]
        assert "".join(texts) == LETTERS == renderer.tokenizer.decode(token_ids)
        assert len(texts) == 1 + len(token_ids)  # the role, then one for each token
        assert not any("�" in text for text in texts)
        assert renderer.chat(play).json["choices"][0]["message"]["content"] == LETTERS

    def test_a_stop_string(self, renderer: Any, tools: Any) -> None:
        token_ids = renderer.ids("one two three four five")
        texts: dict[bool, str] = {}
        for shown in (False, True):
            asked = renderer.complete(
                lambda add: [[tools.joined(tools.record(add, token_ids * 2)[:-1])]],
                stop=["ee fo"],
                include_stop_str_in_output=shown,
            )
            choice = asked.json["choices"][0]
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "ee fo")
            assert asked.aborted == [asked.adds[0]["id"]]
            assert asked.json["usage"]["completion_tokens"] == 4
            texts[shown] = choice["text"]
        assert texts == {False: "one two thr", True: "one two three fo"}

    def test_two_tool_calls(self, parsing: Any, tools: Any) -> None:
        token_ids = parsing.ids(f"{CALLS}<|im_end|>")
        asked = parsing.chat(lambda add: [tools.record(add, token_ids, "stop")], tools=TOOLS)
        choice = asked.json["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        calls = [call["function"] for call in choice["message"]["tool_calls"]]
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
            ("weather", {"city": "Zürich"}),
            ("time", {"city": "東京"}),
        ]

    def test_reasoning(self, parsing: Any, tools: Any) -> None:
        token_ids = parsing.ids("<think>Well, 東京?</think>Tokyo 🗼.")
        found = parsing.chat(lambda add: [tools.record(add, token_ids)]).json["choices"][0]["message"]
        assert (found["reasoning"], found["content"]) == ("Well, 東京?", "Tokyo 🗼.")


def test_tokens_that_wait_for_a_slow_client_are_joined_in_the_end() -> None:
    from vllm.outputs import CompletionOutput, RequestOutput  # noqa: PLC0415
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    from pdd_engine.renderer.engine import MOST_WAITING, OneByOne  # noqa: PLC0415

    def delta(number: int) -> Any:
        return RequestOutput(
            "q", None, [1], None, [CompletionOutput(0, f"{number} ", [number], None, None)], finished=False
        )

    collector = OneByOne(RequestOutputKind.DELTA, "q")
    numbers = range(MOST_WAITING + 100)
    for number in numbers:
        collector.put(delta(number))
    found = []
    while output := collector.get_nowait():
        found.append(output.outputs[0])
    assert len(found) == MOST_WAITING + 1
    assert [token for each in found for token in each.token_ids] == list(numbers)
    assert "".join(each.text for each in found) == "".join(f"{number} " for number in numbers)
