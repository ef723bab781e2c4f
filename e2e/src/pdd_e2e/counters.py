"""The front router's own counters, before and after something."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from pdd_e2e.kube import wait_for


@dataclass
class Counted:
    """What was counted in a context; tokens, and bytes of KV without headers."""

    prompt_tokens: int = 0
    cached_at_prefill: int = 0
    cached_at_main: int = 0
    by_relay: int = 0
    by_main: int = 0
    line_bytes: int = 0


@contextmanager
def counting(url: str) -> Iterator[Counted]:
    """Filled when the context ends and the last transfer that it began has ended: one may outlive its request."""
    before, counted = _read(url), Counted()
    yield counted
    wait_for("the last transfer", lambda: _read(url)["pdd_transfers_in_flight"] == 0, seconds=120, every=0.5)
    after = _read(url)

    def grown(name: str) -> int:
        return round(after.get(name, 0) - before.get(name, 0))

    counted.prompt_tokens = grown("pdd_prompt_tokens_total")
    counted.cached_at_prefill = grown("pdd_cached_tokens_total prefill")
    counted.cached_at_main = grown("pdd_cached_tokens_total main-decode")
    counted.by_relay = grown("pdd_output_tokens_total relay-decode")
    counted.by_main = grown("pdd_output_tokens_total main-decode")
    counted.line_bytes = grown("pdd_line_kv_bytes_total")


def _read(url: str) -> dict[str, float]:
    text = httpx.get(f"{url}/metrics", timeout=10).text
    return {
        " ".join(filter(None, (sample.name, sample.labels.get("role")))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
