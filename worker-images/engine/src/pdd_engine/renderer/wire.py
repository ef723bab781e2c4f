"""The messages between a renderer and a front router, and how they become what vLLM's output processor reads.

A request goes out as `/inference/v1/generate` takes it, and outputs come as it answers them. Two things are lost on
that way and are made good here: its `top_logprobs` is one entry short where the sampled token is not among the top
ones, and it has each candidate once, where the engine's own rows begin with the sampled token and repeat it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest, FinishReason
from vllm.v1.outputs import LogprobsLists, LogprobsTensors

FINISH_REASONS = {str(reason): reason for reason in FinishReason}

# Text is made here, pace is the router's own, the rest an engine derives itself.
NOT_SENT = frozenset({
    "stop", "detokenize", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens",
    "output_kind", "stream_interval", "skip_clone", "output_text_buffer_length", "flat_logprobs",
    "skip_reading_prefix_cache",
})  # fmt: skip

DEFAULTS = {each.name: each.default for each in msgspec.structs.fields(SamplingParams)}

# The width of vLLM's own tensors of tokens and ranks.
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class MessageError(ValueError):
    """A message that makes no sense."""


@dataclass(slots=True)
class Candidate:
    """A token that could have come, and how likely it was."""

    token_id: TokenId
    logprob: float
    rank: Rank | None = None


@dataclass(slots=True)
class Scores(Candidate):
    """The sampled token of one position, and the candidates: itself first, the others by rank."""

    top_logprobs: list[Candidate] = field(default_factory=list)


@dataclass(slots=True)
class PromptScore:
    """A candidate of a position in the prompt; its token id is its key."""

    logprob: float
    rank: Rank | None = None


@dataclass(slots=True)
class Output:
    """New tokens of one request."""

    id: str
    token_ids: list[TokenId]
    logprobs: list[Scores] | None = None
    finish_reason: Literal["stop", "length", "repetition", "abort", "error"] | None = None
    stop_reason: int | str | None = None
    cached_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    prompt_logprobs: list[dict[TokenId, PromptScore] | None] | None = None


_outputs = msgspec.json.Decoder(list[Output])


def outputs(text: str) -> list[Output]:
    """The outputs in a message from a router."""
    try:
        found: list[Output] = _outputs.decode(text)
    except msgspec.MsgspecError as error:
        raise MessageError(f"expected a list of outputs: {error}") from error
    except (RecursionError, UnicodeError) as error:
        raise MessageError(f"expected a list of outputs: {type(error).__name__}") from error
    return found


def add(session: str, request: EngineCoreRequest, model: str) -> str:
    """The message that starts a request."""
    message = {
        "session": session,
        "id": request.request_id,
        "request": {
            "model": model,
            "token_ids": request.prompt_token_ids,
            "sampling_params": sampling_params(request.sampling_params),
            "cache_salt": request.cache_salt,
            "priority": request.priority,
            "reasoning_ended": request.reasoning_ended,
            "reasoning_parser_kwargs": request.reasoning_parser_kwargs,
        },
    }
    return _encode({"add": message})


def abort(ids: Iterable[str]) -> str:
    return _encode({"abort": list(ids)})


def _encode(message: dict[str, Any]) -> str:
    text: bytes = msgspec.json.encode(message)
    return text.decode()


def sampling_params(params: SamplingParams) -> dict[str, Any]:
    """What an engine has to know of vLLM's `SamplingParams`; what is at its default is left out."""
    fields = {
        name: value
        for name, value in msgspec.to_builtins(params).items()
        if not name.startswith("_") and name not in NOT_SENT and value != DEFAULTS[name] and value != []
    }
    for name in ("structured_outputs", "repetition_detection"):
        if nested := fields.get(name):
            fields[name] = {
                key: value
                for key, value in nested.items()
                if value is not None and value is not False and not key.startswith("_")
            }
    if params.logprobs and params.logprobs > 0:
        # Cut to as many entries with the sampled token among them: one more, and the last one is there too.
        fields["logprobs"] = params.logprobs + 1
    return fields | {"max_tokens": params.max_tokens, "detokenize": False}


def sample_logprobs(scores: Scores, asked: int) -> LogprobsLists:
    """One position as the sampler gives it: the sampled token, then the top ones by rank."""
    candidates = ((candidate.token_id, candidate.logprob, candidate.rank) for candidate in scores.top_logprobs)
    token_ids, logprobs = _row(scores.token_id, scores.logprob, candidates, asked)
    return LogprobsLists(np.array([token_ids]), np.array([logprobs]), np.array([scores.rank or 0]))


def prompt_logprobs(positions: list[dict[int, PromptScore] | None], prompt: list[int], asked: int) -> LogprobsTensors:
    """All of a prompt but its first token, which nothing precedes."""
    if len(positions) != len(prompt):
        raise MessageError(
            f"prompt_logprobs has {len(positions)} entries: expected one for each of {len(prompt)} tokens"
        )
    rows: list[list[int]] = []
    values: list[list[float]] = []
    ranks: list[int] = []
    for token_id, scores in zip(prompt[1:], positions[1:], strict=True):
        own = scores.get(token_id) if scores else None
        if scores is None or own is None:
            raise MessageError(f"prompt_logprobs lacks token {token_id} of the prompt")
        candidates = ((other, score.logprob, score.rank) for other, score in scores.items())
        token_ids, logprobs = _row(token_id, own.logprob, candidates, asked)
        rows.append(token_ids)
        values.append(logprobs)
        ranks.append(own.rank or 0)
    if len({len(row) for row in rows}) > 1:
        raise MessageError("prompt_logprobs has positions with more candidates than others")
    width = len(rows[0]) if rows else 1
    return LogprobsTensors(
        torch.tensor(rows, dtype=torch.int32).reshape(-1, width),
        torch.tensor(values, dtype=torch.float64).reshape(-1, width),
        torch.tensor(ranks, dtype=torch.int32),
    )


def _row(
    token_id: int, logprob: float, candidates: Iterable[tuple[int, float, int | None]], asked: int
) -> tuple[list[int], list[float]]:
    ranked = sorted((rank, other, value) for other, value, rank in candidates if rank and (asked < 0 or rank <= asked))
    return [token_id, *(other for _, other, _ in ranked)], [logprob, *(value for _, _, value in ranked)]
