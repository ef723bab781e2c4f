"""The comparison that the parity proofs rest on sees what a client would see, and the catalogue is whole."""

import copy
from typing import Any

import pytest

from pdd_e2e.parity.catalogue import FEATURES, Disposition
from pdd_e2e.parity.compare import DIFFERS, TOLERANCE, by_choice, differences


def chunk(content: str | None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None} | more
    return {"id": "chatcmpl-REQUEST", "created": 5, "choices": [choice], "usage": None}


STREAM: list[Any] = [
    chunk("a"),
    chunk("b", logprobs={"content": [{"token": "b", "logprob": -1.5}]}),
    chunk(None, delta={"tool_calls": [{"id": "chatcmpl-tool-0123", "index": 0}]}),
    chunk(None, finish_reason="stop"),
    "[DONE]",
]


def changed(place: int, change: Any) -> list[Any]:
    stream = copy.deepcopy(STREAM)
    change(stream[place])
    return stream


@pytest.mark.parametrize(
    "wrong",
    [
        STREAM[:1] + STREAM[2:],
        STREAM[:-1],
        [STREAM[1], STREAM[0], *STREAM[2:]],
        [chunk("ab"), *STREAM[2:]],
        [chunk("a"), chunk(""), *STREAM[1:]],
        changed(0, lambda e: e.pop("usage")),
        changed(0, lambda e: e.update(more=None)),
        changed(0, lambda e: e.update(id="chatcmpl-other")),
        changed(0, lambda e: e["choices"][0].update(finish_reason="length")),
        changed(1, lambda e: e["choices"][0]["logprobs"]["content"][0].update(logprob=-1.5 - 4 * TOLERANCE)),
        changed(1, lambda e: e["choices"][0]["logprobs"].update(content=[])),
        changed(2, lambda e: e["choices"][0]["delta"]["tool_calls"][0].update(id="call-0123")),
        changed(2, lambda e: e["choices"][0]["delta"]["tool_calls"][0].update(index=1)),
    ],
    ids=["a chunk less", "no end", "order", "joined", "one more", "no null", "a null more", "id", "finish", "score",
         "no scores", "form of a tool call's id", "place of a tool call"],
)  # fmt: skip
def test_it_sees(wrong: list[Any]) -> None:
    assert list(differences(by_choice(wrong), by_choice(STREAM)))


def test_it_overlooks_what_must_differ_and_nothing_else() -> None:
    same = copy.deepcopy(STREAM)
    same[0] |= {"created": 6, "system_fingerprint": "x", "pdd": {"by": "RLD"}}
    same[1]["choices"][0]["logprobs"]["content"][0]["logprob"] += TOLERANCE / 2
    same[2]["choices"][0]["delta"]["tool_calls"][0]["id"] = "chatcmpl-tool-4567"
    assert not list(differences(by_choice(same), by_choice(STREAM)))
    assert set(DIFFERS) == {"created", "system_fingerprint", "created_cache_tokens", "pdd"}


def test_choices_may_interleave_but_keep_their_order() -> None:
    first, second = chunk("a"), chunk("b", index=1)
    last = chunk("c", index=1)
    assert by_choice([first, second, last, "[DONE]"]) == by_choice([second, first, last, "[DONE]"])
    assert by_choice([first, second, last]) != by_choice([first, last, second])


def test_every_row_says_what_it_needs() -> None:
    names = [feature.name for feature in FEATURES]
    assert len(names) == len(set(names))
    for feature in FEATURES:
        assert feature.examples
        for example in feature.examples:
            if feature.disposition is Disposition.ONE_ENGINE:
                assert example.stays, feature.name
            if feature.disposition is Disposition.REFUSED:
                assert example.parameter, feature.name
