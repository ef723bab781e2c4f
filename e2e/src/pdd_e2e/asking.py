"""Requests whose clients may leave or wait in vain: raw HTTP, because an SDK hides both."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx
import orjson


@dataclass
class Outcome:
    """`status` is None for a client that left before there was one; `error` is what a body or a stream said."""

    status: int | None = None
    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    trace: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    broken: str = ""
    """The connection ended in the middle: what httpx says."""

    @property
    def complete(self) -> bool:
        return self.status == 200 and self.finish_reason is not None and self.error is None


def ask(
    url: str,
    model: str,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    stream: bool = True,
    headers: dict[str, str] | None = None,
    leave_after_seconds: float | None = None,
    leave_after_tokens: int | None = None,
    patience: float = 120,
    into: Outcome | None = None,
    **more: Any,
) -> Outcome:
    """A greedy completion with a cache of its own. Leaving closes the connection, as a browser does. `into` is filled
    as the answer comes, for who watches from another thread.

    Raises TimeoutError when nothing came for `patience` seconds: a request must never hang.
    """
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
        "return_token_ids": True,
        "cache_salt": uuid4().hex,
        **more,
    }
    outcome, began = into or Outcome(), monotonic()
    read = patience if leave_after_seconds is None else leave_after_seconds
    try:
        with (
            httpx.Client(timeout=httpx.Timeout(60, read=read)) as client,
            client.stream(
                "POST", f"{url}/v1/completions", json=body, headers={"X-PDD-Trace": "on", **(headers or {})}
            ) as response,
        ):
            outcome.status = response.status_code
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                _whole(outcome, orjson.loads(response.read()))
                return outcome
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    _event(outcome, orjson.loads(line[6:]))
                if leave_after_tokens is not None and len(outcome.ids) >= leave_after_tokens:
                    return outcome
                if leave_after_seconds is not None and monotonic() - began > leave_after_seconds:
                    return outcome
    except httpx.ReadTimeout:
        if leave_after_seconds is None:
            raise TimeoutError(f"nothing came for {patience} s after {len(outcome.ids)} tokens") from None
    except httpx.TransportError as error:
        outcome.broken = f"{type(error).__name__}: {error}"
    finally:
        outcome.seconds = monotonic() - began
    return outcome


def _whole(outcome: Outcome, body: dict[str, Any]) -> None:
    outcome.error = body.get("error")
    outcome.trace = body.get("pdd") or {}
    for choice in body.get("choices", ()):
        outcome.ids += choice.get("token_ids") or []
        outcome.finish_reason = choice["finish_reason"]


def _event(outcome: Outcome, event: dict[str, Any]) -> None:
    outcome.error = event.get("error") or outcome.error
    if event.get("object") == "pdd.trace":
        outcome.trace = event["pdd"]
    for choice in event.get("choices", ()):
        outcome.ids += choice.get("token_ids") or []
        outcome.finish_reason = choice["finish_reason"] or outcome.finish_reason
