"""A session's later turns send only what MD lacks: read from the line's own counters."""

import time

import pytest
from openai import OpenAI

from pdd_e2e import line
from pdd_e2e.client import complete
from pdd_e2e.prompts import prompt

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not line.countable(), reason="PDD_E2E_LINE is not set: the line cannot be asked"),
]

# TCP/IP headers of 1,500-byte packets, acknowledgements the other way not counted: measured 4.6 %.
HEADERS = 1.046
BLOCK = 32
# The tiny model: 2 layers, K and V, 3 heads of 64 float32 numbers.
KV_BYTES_PER_TOKEN = 2 * 2 * 3 * 64 * 4


def crossed(tiny: OpenAI, ids: list[int]) -> tuple[int, int]:
    """Bytes that a request (P-MD, one token) sent from a to b, and the KV bytes the router had asked for."""
    with line.crossing() as counted:
        answer = complete(tiny, "tiny", ids, max_tokens=1, pipeline="P-MD")
        time.sleep(0.2)
    return counted.a_to_b, answer.trace["line_bytes"]


def test_a_second_turn_sends_what_md_lacks(tiny: OpenAI) -> None:
    complete(tiny, "tiny", prompt(64, seed=77), max_tokens=1, pipeline="P-MD")  # the pair knows each other
    with line.crossing() as idle:
        time.sleep(1.0)
    background = idle.a_to_b * 1.2  # pings, the operator's watches

    first_ids = prompt(2048, seed=5)
    first, first_kv = crossed(tiny, first_ids)
    second_ids = first_ids + prompt(512, seed=6)
    second, second_kv = crossed(tiny, second_ids)

    assert first_kv == 2048 * KV_BYTES_PER_TOKEN
    # 512 new tokens of 2,560: a fifth, and at most the block before them again.
    assert second_kv / first_kv == pytest.approx(512 / 2048, abs=BLOCK / 2048)
    for bytes_seen, kv in ((first, first_kv), (second, second_kv)):
        assert bytes_seen - background == pytest.approx(kv * HEADERS, rel=0.10)


def test_the_relay_sends_no_more_than_the_direct_way(tiny: OpenAI) -> None:
    ids = prompt(2048, seed=15)
    with line.crossing() as counted:
        answer = complete(tiny, "tiny", ids, max_tokens=128, pipeline="P-RLD-MD")
        time.sleep(0.2)
    assert counted.a_to_b == pytest.approx(answer.trace["line_bytes"] * HEADERS, rel=0.10)
