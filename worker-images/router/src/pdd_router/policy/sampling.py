"""What each engine of a pipeline is asked for."""

from collections.abc import Mapping
from typing import Any

# Prefill makes one token, which is thrown away: the decoding engine samples its own.
PREFILL: Mapping[str, Any] = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}


def for_prefill(sampling_params: Mapping[str, Any]) -> dict[str, Any]:
    """P scores the prompt where that was asked for: scoring reads no cache, remote or own, so MD cannot."""
    scores = sampling_params.get("prompt_logprobs")
    return dict(PREFILL) if scores is None else {**PREFILL, "prompt_logprobs": scores}


def for_decode(sampling_params: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in sampling_params.items() if field != "prompt_logprobs"}


def after(sampling_params: Mapping[str, Any], made: int) -> dict[str, Any]:
    """`sampling_params` of the whole answer, less the `made` tokens that are out already.

    Raises ValueError when nothing is left to ask for: the answer is complete.
    """
    rest = dict(sampling_params)
    if rest.get("max_tokens") is not None:
        rest["max_tokens"] -= made
        if rest["max_tokens"] <= 0:
            raise ValueError(f"max_tokens {sampling_params['max_tokens']} reached with {made} tokens")
    if rest.get("min_tokens"):
        rest["min_tokens"] = max(0, rest["min_tokens"] - made)
    return rest
