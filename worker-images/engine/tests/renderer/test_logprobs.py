"""A row of logprobs that went over `/inference/v1/generate` is the one that an engine of its own would have given."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.entrypoints.generate.base.serving import clamp_prompt_logprobs
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateTokensResponse
from vllm.entrypoints.scale_out.token_in_token_out.serving import ServingTokens
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.engine.logprobs import LogprobsProcessor
from vllm.v1.outputs import LogprobsTensors

from pdd_engine.renderer import wire

VOCABULARY = 40


def gather(logprobs: torch.Tensor, most: int, token_ids: list[int]) -> LogprobsTensors:
    """As vLLM's sampler (v1/sample/sampler.py, gather_logprobs), which cannot count ranks without a compiler."""
    own = torch.tensor(token_ids).unsqueeze(-1)
    top, indices = torch.topk(logprobs, VOCABULARY if most < 0 else most, dim=-1)
    values = logprobs.gather(-1, own)
    return LogprobsTensors(
        torch.cat((own, indices), dim=1).to(torch.int32),
        torch.cat((values, top), dim=1),
        (logprobs >= values).sum(-1),
    )


def processed(params: SamplingParams, **output: Any) -> LogprobsProcessor:
    processor = LogprobsProcessor.from_new_request(None, SimpleNamespace(sampling_params=params))
    processor.update_from_output(EngineCoreOutput("q", [], **output))
    return processor


def seen(rows: Any) -> list[Any]:
    """What OpenAI's API shows of rows: the order counts, and what is impossible is -9999."""
    return [
        row and [(token_id, max(entry.logprob, -9999.0), entry.rank) for token_id, entry in row.items()] for row in rows
    ]


def distributions(count: int, seed: int, *, masked: bool) -> torch.Tensor:
    logits = torch.randn(count, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    if masked:
        logits[:, VOCABULARY // 2 :] = float("-inf")
    return logits.log_softmax(-1, dtype=torch.float32)


ASKED = st.integers(-1, 20)
TOKENS = st.lists(st.integers(0, VOCABULARY // 2 - 1), min_size=1, max_size=5)


@settings(deadline=None)
@given(asked=ASKED, tokens=TOKENS, seed=st.integers(0, 2**32), masked=st.booleans())
def test_of_sampled_tokens(asked: int, tokens: list[int], seed: int, masked: bool) -> None:
    logprobs = distributions(len(tokens), seed, masked=masked)
    alone = processed(SamplingParams(logprobs=asked), new_logprobs=gather(logprobs, asked, tokens).tolists())

    params = wire.sampling_params(SamplingParams(logprobs=asked))
    engine = processed(
        SamplingParams(logprobs=params["logprobs"]),
        new_logprobs=gather(logprobs, params["logprobs"], tokens).tolists(),
    )
    answer = ServingTokens._create_tokens_logprobs(None, tokens, engine.logprobs, params["logprobs"])
    output = {"id": "q", "token_ids": tokens, "logprobs": json.loads(answer.model_dump_json())["content"]}
    (received,) = wire.outputs(json.dumps([output]))
    assert received.logprobs
    there = LogprobsProcessor.from_new_request(None, SimpleNamespace(sampling_params=SamplingParams(logprobs=asked)))
    for position in received.logprobs:
        there.update_from_output(EngineCoreOutput("q", [], new_logprobs=wire.sample_logprobs(position, asked)))
    assert seen(there.logprobs) == seen(alone.logprobs)
    assert there.cumulative_logprob == pytest.approx(alone.cumulative_logprob)


@settings(deadline=None)
@given(asked=ASKED, prompt=TOKENS, seed=st.integers(0, 2**32), masked=st.booleans())
def test_of_a_prompt(asked: int, prompt: list[int], seed: int, masked: bool) -> None:
    logprobs = distributions(len(prompt) - 1, seed, masked=masked)
    params = SamplingParams(prompt_logprobs=asked)
    alone = processed(params, new_prompt_logprobs_tensors=gather(logprobs, asked, prompt[1:]))

    engine = processed(params, new_prompt_logprobs_tensors=gather(logprobs, asked, prompt[1:]))
    answer = GenerateTokensResponse(
        request_id="q",
        choices=[],
        created=0,
        model="m",
        usage={},
        prompt_logprobs=clamp_prompt_logprobs(engine.prompt_logprobs),
    )
    output = {"id": "q", "token_ids": [], "prompt_logprobs": json.loads(answer.model_dump_json())["prompt_logprobs"]}
    (received,) = wire.outputs(json.dumps([output]))
    assert received.prompt_logprobs
    there = processed(params, new_prompt_logprobs_tensors=wire.prompt_logprobs(received.prompt_logprobs, prompt, asked))
    assert seen(there.prompt_logprobs) == seen(alone.prompt_logprobs)


def test_as_many_as_asked_would_lose_one() -> None:
    """Why one more is asked for: the sampled token is one of the entries, and the last one has no room."""
    logprobs = distributions(1, 7, masked=False)
    least = int(logprobs.argmin())
    engine = processed(SamplingParams(logprobs=2), new_logprobs=gather(logprobs, 2, [least]).tolists())
    answer = ServingTokens._create_tokens_logprobs(None, [least], engine.logprobs, 2)
    assert [entry.rank for entry in answer.content[0].top_logprobs] == [VOCABULARY, 1]
