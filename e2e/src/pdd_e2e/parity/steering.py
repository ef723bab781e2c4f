"""Makes the tiny model say a given text: markup of tools and reasoning does not come by itself from random weights.

Each token gets a bias that is lower than the one before, and a repetition penalty takes away what was said already. All
of it is over the whole sequence, so it goes on exactly after a handoff; but no token can come twice, nor stand in the
prompt.
"""

from collections.abc import Sequence
from typing import Any

END_OF_TURN = 2
"""`<|im_end|>`: stands in every chat's prompt, so it is penalised from the start and wins when all else was said."""

# Ids of the demo models' vocabulary.
_TOOL_CALL = {
    "<": 44, "tool": 19324, "_": 79, "call": 4350, ">": 46, '{"': 39428, "name": 1245, '":"': 25535, "add": 2104,
    '","': 14460, "arguments": 24370, '":': 1799, ' {"': 9583, "x": 104, '"': 18, ":": 42, "4": 36, "}}": 17859,
}  # fmt: skip
_REASONING = {
    "two": 11355, " and": 284, " two": 827, "</": 9617, "think": 17400, ">": 46, "It": 1589, " is": 314, " four": 1876,
    ".": 30,
}  # fmt: skip
_COUNTING = {" one": 582, " two": 827, " three": 1296, " four": 1876, " five": 2531, " six": 2976, " seven": 4962}

TOOL_CALL, TOOL_CALL_TEXT = list(_TOOL_CALL.values()), "".join(_TOOL_CALL)
REASONING, REASONING_TEXT = list(_REASONING.values()), "".join(_REASONING)
COUNTING, COUNTING_TEXT = list(_COUNTING.values()), "".join(_COUNTING)

# Several tokens make one character of it.
MULTI_BYTE = [15486, 46494, 15107, 116, 243, 10813, 117, 251, 24488, 231, 1346, 4636, 242, 239, 30]
MULTI_BYTE_TEXT = " naïve 🦙🧭 čaj ☕."

_FIRST, _LAST, _PENALTY = 92.0, 14.0, 100.0


# What the model likes more or less than its neighbours by more than a step between two of them.
_LIKED = {_TOOL_CALL[">"]: 2.25, _TOOL_CALL["call"]: -2.25, _TOOL_CALL["x"]: 2.25, _TOOL_CALL[' {"']: -2.25,
          _TOOL_CALL["arguments"]: -2.25}  # fmt: skip


def say(token_ids: Sequence[int], *, end_of_turn: bool = True) -> dict[str, Any]:
    """Fields of a request that make greedy decoding say these tokens, and then end its turn (chats only)."""
    step = (_FIRST - _LAST) / (len(token_ids) - 1)
    bias = {str(id): round(_FIRST - place * step - _LIKED.get(id, 0), 2) for place, id in enumerate(token_ids)}
    if end_of_turn:
        bias[str(END_OF_TURN)] = 100.0
    return {
        "temperature": 0,
        "max_tokens": len(token_ids) + (1 if end_of_turn else 0),
        "logit_bias": bias,
        "allowed_token_ids": [int(token) for token in bias],
        "repetition_penalty": _PENALTY,
    }
