"""Whether one engine may read another's KV cache: it must be the same model in the same format.

NIXL compares shapes, types and versions when two engines meet, and a difference fails the request there. It does not
see different weights, a different quantisation or another tokenizer: those give wrong tokens with status 200. So the
router compares before it uses a pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMPARED = (
    "model", "revision", "vllm_version", "dtype", "kv_cache_dtype", "block_size", "kv_bytes_per_token",
    "kv_lease_duration", "weights_fingerprint", "tokenizer_fingerprint", "adapters_fingerprint",
)  # fmt: skip
"""Fields of an engine's facts that must be equal. `model` is a path in the pod: NIXL hashes it. A reader trusts a
lease for as long as its own settings say."""

COMPARED_WITH_RENDERER = ("model", "revision", "vllm_version", "tokenizer_fingerprint", "adapters_fingerprint")


@dataclass(frozen=True)
class Party:
    """One engine or renderer, and what it says about itself."""

    engine: str
    site: str
    role: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Mismatch:
    field: str
    prefill: Party
    other: Party

    def body(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "prefill": {"engine": self.prefill.engine, "value": _shown(self.prefill.facts[self.field])},
            "other": {
                "engine": self.other.engine,
                "site": self.other.site,
                "role": self.other.role,
                "value": _shown(self.other.facts[self.field]),
            },
        }


def form(facts: Mapping[str, Any]) -> list[Any]:
    """What a KV cache of this engine is, as a value to compare: equal forms may read each other."""
    return [facts[field] for field in COMPARED]


def mismatches(prefills: Sequence[Party], others: Iterable[Party]) -> list[Mismatch]:
    """For every pair the first field that differs; sorted, so that the same state reads the same."""
    found = []
    for prefill in prefills:
        for other in others:
            fields = COMPARED_WITH_RENDERER if other.role == "renderer" else COMPARED
            wrong = next((field for field in fields if prefill.facts[field] != other.facts[field]), None)
            if wrong is not None:
                found.append(Mismatch(wrong, prefill, other))
    return sorted(found, key=lambda m: (m.field, m.prefill.engine, m.other.site, m.other.engine))


def _shown(value: Any) -> str:
    return str(value)
