"""What each engine of a pipeline is asked for."""

from collections.abc import Mapping
from typing import Any

# Prefill makes one token, which is thrown away: the decoding engine samples its own.
PREFILL: Mapping[str, Any] = {"max_tokens": 1, "temperature": 0.0}


def after_eager(sampling_params: Mapping[str, Any], eager: int) -> dict[str, Any]:
    """`sampling_params` of the whole answer, less the `eager` tokens that are out already.

    Raises ValueError when nothing is left to ask for: the answer was complete before the handoff.
    """
    rest = dict(sampling_params)
    if rest.get("max_tokens") is not None:
        rest["max_tokens"] -= eager
        if rest["max_tokens"] <= 0:
            raise ValueError(f"max_tokens {sampling_params['max_tokens']} reached with {eager} eager tokens")
    if rest.get("min_tokens"):
        rest["min_tokens"] = max(0, rest["min_tokens"] - eager)
    return rest
