from typing import Any

import pytest

from pdd_router.policy.features import stays_because


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.2},
        {"prompt_logprobs": 2, "min_tokens": 1, "ignore_eos": True},
        {"logprobs": 3, "logit_bias": {"5": 1.0}, "allowed_token_ids": [1, 2], "stop_token_ids": [9]},
        {"presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "bad_words": []},
        {"seed": None, "structured_outputs": None},
    ],
)
def test_another_engine_goes_on_exactly(params: dict[str, Any]) -> None:
    assert stays_because(params, position_seeds=False) is None


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"seed": 0}, "seed"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -0.5}, "frequency_penalty"),
        ({"structured_outputs": {"json": "{}"}}, "structured_outputs"),
        ({"bad_words": ["no"]}, "bad_words"),
        ({"repetition_detection": {"min_count": 3}}, "repetition_detection"),
        ({"extra_args": {"x": 1}}, "extra_args"),
        ({"a_field_of_a_later_vllm": 1}, "a_field_of_a_later_vllm"),
    ],
)
def test_the_rest_stays_on_one_engine(params: dict[str, Any], named: str) -> None:
    assert stays_because(params, position_seeds=False) == named


def test_a_seed_that_counts_positions_may_move() -> None:
    assert stays_because({"seed": 7}, position_seeds=True) is None
