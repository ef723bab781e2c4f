"""The demo's model, end to end: fewer requests, because each costs seconds on two cores."""

from collections.abc import Iterator

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from pdd_e2e import client
from pdd_e2e.client import Pipeline, chat, complete
from pdd_e2e.environment import Images, Sites
from pdd_e2e.prompts import prompt
from pdd_e2e.reference import reference

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def alone(sites: Sites, images: Images, real: OpenAI) -> Iterator[OpenAI]:
    with reference(sites.a, images.engine, "/models/smollm2-135m", "assistant") as url:
        yield client.connect(url)


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
@pytest.mark.parametrize("length", [100, 700])
def test_tokens(real: OpenAI, alone: OpenAI, length: int, pipeline: Pipeline) -> None:
    ids = prompt(length, seed=length + len(pipeline))
    answer = complete(real, "assistant", ids, max_tokens=32, pipeline=pipeline)
    assert answer.token_ids == complete(alone, "assistant", ids, max_tokens=32, trace=False).token_ids


def test_a_chat_makes_sense(real: OpenAI, alone: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
    ]
    answer = chat(real, "assistant", messages, max_tokens=24, pipeline="P-RLD-MD")
    assert "Paris" in answer.text
    assert answer.text == chat(alone, "assistant", messages, max_tokens=24).text
