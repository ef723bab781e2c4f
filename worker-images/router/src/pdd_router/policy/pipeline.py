"""Which way a request goes: P-MD when its KV crosses the line soon enough, else P-RLD-MD.

The decision rests on the prefix hit at *P* and the predicted transfer. It never looks at the hit at MD or
at how busy RLD is: either would let MD's cache fall behind, which makes more requests look low-hit, which
sends more of them to RLD, until the relay pool collapses.
"""

from dataclasses import dataclass
from enum import StrEnum

from pdd_router.policy.transfer import kv_bytes, transfer_seconds


class Pipeline(StrEnum):
    DIRECT = "P-MD"
    RELAY = "P-RLD-MD"


@dataclass(frozen=True)
class Observed:
    prompt_tokens: int
    cached_at_prefill: int
    kv_bytes_per_token: int
    block_size: int
    bits_per_second: int
    round_trip_seconds: float


@dataclass(frozen=True)
class Choice:
    pipeline: Pipeline
    predicted_seconds: float
    reason: str


def choose(
    observed: Observed,
    *,
    tolerated_wait_seconds: float,
    forced: Pipeline | None,
    cannot_hand_off: str | None,
    relay_there: bool,
) -> Choice:
    """`cannot_hand_off` names the request's feature that must stay on one engine, None if there is none."""
    missed = observed.prompt_tokens - observed.cached_at_prefill
    size = kv_bytes(missed, kv_bytes_per_token=observed.kv_bytes_per_token, block_size=observed.block_size)
    predicted = transfer_seconds(
        size, bits_per_second=observed.bits_per_second, round_trip_seconds=observed.round_trip_seconds
    )
    if cannot_hand_off is not None:
        return Choice(Pipeline.DIRECT, predicted, f"{cannot_hand_off} stays on one engine")
    if forced is not None:
        return Choice(forced, predicted, "forced by the request")
    if predicted <= tolerated_wait_seconds:
        return Choice(Pipeline.DIRECT, predicted, "the transfer is within the tolerated wait")
    if not relay_there:
        return Choice(Pipeline.DIRECT, predicted, "no relay engine is ready")
    return Choice(Pipeline.RELAY, predicted, "the transfer is longer than the tolerated wait")
