"""Which answers may change their decoder in the middle: from RLD to MD, or from an engine that died to another.

The one that goes on gets "prompt + tokens so far" as its prompt. That is exact for whatever is decided from the whole
sequence, and for counts that the router lowers. What an engine counts, parses or draws over its own *output* is not,
and such an answer stays on the engine that began it: P-MD, no relay.

What makes text of tokens (stop strings, tools, reasoning, usage) is not here: the renderer does it once, over the one
stream of ids, whoever made them.
"""

from collections.abc import Mapping
from typing import Any

EXACT = frozenset(
    {
        "max_tokens", "min_tokens",  # the router lowers them (policy/sampling.py)
        "temperature", "top_p", "top_k", "min_p",
        "repetition_penalty",  # over prompt and output alike
        "logit_bias", "allowed_token_ids", "stop_token_ids", "ignore_eos",
        "logprobs", "logprob_token_ids", "flat_logprobs",
        "prompt_logprobs",  # P's, whoever decodes (policy/sampling.py)
        # The renderer's, or without a meaning for tokens.
        "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output", "detokenize",
        "skip_reading_prefix_cache",
    }
)  # fmt: skip
"""Fields of vLLM's SamplingParams that another engine continues exactly. Absent fields are at vLLM's default."""


def stays_because(sampling_params: Mapping[str, Any], *, position_seeds: bool) -> str | None:
    """The first field that keeps an answer on one engine; None when another can go on exactly.

    `position_seeds`: whether the engines draw a seeded sample from (seed, position) alone (a fact of theirs).
    """
    for field, value in sampling_params.items():
        if value is None or field in EXACT:
            continue
        if field == "seed" and position_seeds:
            continue
        if field in ("presence_penalty", "frequency_penalty") and value == 0:
            continue
        if field == "bad_words" and not value:
            continue
        if field == "n" and value == 1:
            continue
        return field
    return None
