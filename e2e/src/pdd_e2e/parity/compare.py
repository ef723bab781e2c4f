"""Two replies, event by event: what is not the same."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

DIFFERS = {
    "created": "the second in which the request came",
    "system_fingerprint": "vLLM's hash over an engine's whole configuration, its cache and port included",
    "created_cache_tokens": "what an engine newly put into its cache: here several engines did",
    "pdd": "only with X-PDD-Trace: who made the tokens, and how",
}
"""Fields that need not be the same, wherever they stand, and why. `id` is compared: it comes from X-Request-Id. Of the
`id` of a tool call, which is drawn at random, the form is compared."""

# fp32 on both sides; sums are made in another order where a prompt is computed in other pieces.
TOLERANCE = 2e-3


def differences(mine: Any, right: Any, at: str = "") -> Iterator[str]:
    """One line for each place where `mine` is not `right`."""
    if isinstance(mine, dict) and isinstance(right, dict):
        for key in [*mine, *(key for key in right if key not in mine)]:
            if key in DIFFERS:
                continue
            place = f"{at}.{key}"
            if key not in mine or key not in right:
                yield f"{place}: only in {'the answer' if key in mine else 'the right one'}"
            elif key == "id" and "tool_calls" in at:
                yield from differences(_form(mine[key]), _form(right[key]), place)
            else:
                yield from differences(mine[key], right[key], place)
    elif isinstance(mine, list) and isinstance(right, list):
        if len(mine) != len(right):
            yield f"{at}: {len(mine)} entries, right are {len(right)}"
        for number, (a, b) in enumerate(zip(mine, right, strict=False)):
            yield from differences(a, b, f"{at}[{number}]")
    elif isinstance(mine, float) and isinstance(right, float):
        if not math.isclose(mine, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{at}: {mine}, right is {right}"
    elif type(mine) is not type(right) or mine != right:
        yield f"{at}: {mine!r}, right is {right!r}"


def _form(tool_call_id: Any) -> Any:
    """`chatcmpl-tool-` and how many digits."""
    if not isinstance(tool_call_id, str):
        return tool_call_id
    kind, _, digits = tool_call_id.rpartition("-")
    return kind, len(digits)


def by_choice(events: Sequence[Any]) -> list[Any]:
    """A stream of several choices, one choice after the other: how they interleave is a matter of time in vLLM too."""

    def index(event: Any) -> int:
        choices = event.get("choices") if isinstance(event, dict) else None
        return choices[0]["index"] if choices else len(events)

    return sorted(events, key=index)
