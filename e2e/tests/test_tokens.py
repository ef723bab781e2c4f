"""Right tokens: what comes through P, RLD and MD in two clusters is what one engine alone says, token by token."""

from collections import Counter

import pytest
from openai import OpenAI

from pdd_e2e.client import Pipeline, chat, complete
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

# Around block boundaries (32), a few long ones; 34 lengths x 2 pipelines = 68 requests.
LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 150, 200, 255, 256, 257, 300, 350, 400, 450, 511, 512, 513]
LENGTHS += [600, 700, 800, 900, 1000, 1200, 1500, 2000, 2500, 3000]
OUTPUT = 48

eager: Counter[str] = Counter()


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_token_is_a_single_engines(tiny: OpenAI, alone: OpenAI, length: int, pipeline: Pipeline) -> None:
    ids = prompt(length, seed=1 if pipeline == "P-MD" else 2)
    right = complete(alone, "tiny", ids, max_tokens=OUTPUT, trace=False)
    answer = complete(tiny, "tiny", ids, max_tokens=OUTPUT, pipeline=pipeline)
    assert answer.token_ids == right.token_ids
    assert answer.text == right.text
    assert answer.finish_reason == right.finish_reason
    assert answer.trace["pipeline"] == pipeline
    eager["requests"] += answer.trace["eager_tokens"] > 0
    eager["handed over"] += 0 < answer.trace["eager_tokens"] < OUTPUT


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
def test_sixteen_tokens_are_sixteen(tiny: OpenAI, alone: OpenAI, pipeline: Pipeline) -> None:
    """vLLM's own default length, which its renderer does not spell out."""
    ids = prompt(400, seed=41)
    answer = complete(tiny, "tiny", ids, max_tokens=16, pipeline=pipeline)
    assert answer.token_ids == complete(alone, "tiny", ids, max_tokens=16, trace=False).token_ids
    assert len(answer.token_ids) == 16


def test_the_relay_was_really_used(tiny: OpenAI) -> None:
    """Above, RLD and MD both spoke in most of the forced relay requests: otherwise nothing was proven."""
    if not eager["requests"]:
        pytest.skip("only some tests were chosen, and those above were not among them")
    assert eager["handed over"] >= len(LENGTHS) // 2, eager


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
def test_chat_is_a_single_engines(tiny: OpenAI, alone: OpenAI, pipeline: Pipeline) -> None:
    text = " ".join(f"word{n}" for n in range(150))
    answer = chat(tiny, "tiny", [{"role": "user", "content": text}], max_tokens=OUTPUT, pipeline=pipeline)
    right = chat(alone, "tiny", [{"role": "user", "content": text}], max_tokens=OUTPUT)
    assert answer.token_ids == right.token_ids
    assert answer.text == right.text
    assert answer.usage
    assert right.usage
    assert answer.usage["completion_tokens"] == right.usage["completion_tokens"] == OUTPUT
    assert answer.usage["prompt_tokens"] == right.usage["prompt_tokens"]


def test_a_batch_is_a_single_engines(tiny: OpenAI, alone: OpenAI) -> None:
    """Completions of several prompts: each is prefilled, leased and pulled for itself."""
    prompts = [prompt(200, seed=61), prompt(333, seed=62)]
    answer, right = (
        c.completions.create(model="tiny", prompt=prompts, max_tokens=12, temperature=0) for c in (tiny, alone)
    )
    assert [choice.text for choice in answer.choices] == [choice.text for choice in right.choices]
    assert len(answer.choices) == 2


def test_the_first_chunk_leaves_with_the_first_token(tiny: OpenAI) -> None:
    """It does not wait for the transfer: 3,000 tokens need some time on the line."""
    answer = complete(tiny, "tiny", prompt(3000, seed=9), max_tokens=200, pipeline="P-RLD-MD")
    seconds = answer.trace["seconds"]
    assert answer.pieces[0].by == "RLD"
    assert seconds["ttft"] < seconds["transfer_began"] + seconds["transfer"]
