"""Requests to an endpoint, with who made each token and when: what the demo draws and the proofs compare."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

Pipeline = Literal["P-MD", "P-RLD-MD"]


@dataclass
class Piece:
    """A streamed delta: its text, who made it, seconds since the request."""

    text: str
    by: str
    at: float


@dataclass
class Answer:
    token_ids: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def ttft(self) -> float:
        return self.pieces[0].at


def connect(url: str) -> OpenAI:
    """`url` without `/v1`. No retries: a failure is a finding."""
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)


def _headers(pipeline: Pipeline | None, trace: bool) -> dict[str, str]:
    headers = {"X-PDD-Trace": "on"} if trace else {}
    return headers | ({"X-PDD-Pipeline": pipeline} if pipeline else {})


def complete(
    client: OpenAI,
    model: str,
    prompt: Sequence[int] | str,
    *,
    max_tokens: int,
    pipeline: Pipeline | None = None,
    trace: bool = True,
    **more: Any,
) -> Answer:
    """A greedy, streamed completion. `more` goes into the body as it is."""
    start = perf_counter()
    stream = client.completions.create(
        model=model,
        prompt=prompt if isinstance(prompt, str) else list(prompt),
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True, **more},
        extra_headers=_headers(pipeline, trace),
    )
    answer = Answer()
    for chunk in stream:
        _add(answer, chunk.to_dict(), perf_counter() - start, lambda choice: choice.get("text") or "")
    return answer


def chat(
    client: OpenAI,
    model: str,
    messages: list[ChatCompletionMessageParam],
    *,
    max_tokens: int,
    pipeline: Pipeline | None = None,
    each: Callable[[Piece], None] = lambda piece: None,
    **more: Any,
) -> Answer:
    """A greedy, streamed chat; `each` sees every piece as it comes."""
    start = perf_counter()
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True, **more},
        extra_headers=_headers(pipeline, trace=True),
    )
    answer = Answer()
    for chunk in stream:
        before = len(answer.pieces)
        _add(
            answer,
            chunk.to_dict(),
            perf_counter() - start,
            lambda choice: (choice.get("delta") or {}).get("content") or "",
        )
        for piece in answer.pieces[before:]:
            each(piece)
    return answer


def _add(answer: Answer, chunk: dict[str, Any], at: float, text: Callable[[dict[str, Any]], str]) -> None:
    pdd = chunk.get("pdd") or {}
    for choice in chunk.get("choices") or ():
        ids = choice.get("token_ids") or []
        answer.token_ids.extend(ids)
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        if ids or text(choice):
            answer.pieces.append(Piece(text(choice), pdd.get("by", "?"), at))
    if "pipeline" in pdd:
        answer.trace = pdd
    answer.usage = chunk.get("usage") or answer.usage
