"""Real sessions as token ids, scaled to a small model's context with their prefix structure kept."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "traces" / "agentic-sample.jsonl"

# The demo model's vocabulary is 49,152; the first 1,000 ids hold special tokens and single bytes.
_FIRST_ID, _LAST_ID = 1_000, 49_000


@dataclass(frozen=True)
class Turn:
    """One request of a session."""

    session: str
    number: int
    token_ids: list[int]
    output_tokens: int


def sessions(path: Path = SAMPLE, *, scale: float, output_scale: float, max_output: int) -> Iterator[list[Turn]]:
    """Each session's turns in order. `scale`: prompt tokens here for each of the trace (1/40: 40K become 1K).

    A block of the trace becomes a run of ids that depends on the block's identity and place only, so two
    prompts share exactly the (scaled) prefix that they share in the trace.
    """
    for line in path.read_text().splitlines():
        session = json.loads(line)
        yield [
            Turn(
                session=session["session"],
                number=number,
                token_ids=_ids(session["session"], session["block"] * scale, runs),
                output_tokens=max(4, min(max_output, round(output * output_scale))),
            )
            for number, (_, _, output, runs) in enumerate(session["requests"])
        ]


def _ids(session: str, tokens_per_block: float, runs: list[tuple[int, int]]) -> list[int]:
    ids: list[int] = []
    blocks = (first + offset for first, count in runs for offset in range(count))
    for place, block in enumerate(blocks):
        upto = int((place + 1) * tokens_per_block)
        ids.extend(_id(session, block, place, n) for n in range(len(ids), upto))
    return ids


def _id(*parts: object) -> int:
    digest = blake2b(repr(parts).encode(), digest_size=4).digest()
    return _FIRST_ID + int.from_bytes(digest, "big") % (_LAST_ID - _FIRST_ID)


def prefix_hits(turns: list[Turn]) -> list[float]:
    """Share of each prompt that an endless cache would have had from the session's earlier prompts."""
    hits: list[float] = []
    for position, turn in enumerate(turns):
        shared = max((_common(turn.token_ids, earlier.token_ids) for earlier in turns[:position]), default=0)
        hits.append(shared / len(turn.token_ids))
    return hits


def _common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
