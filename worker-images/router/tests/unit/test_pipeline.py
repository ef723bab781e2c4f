import pytest

from pdd_router.policy.pipeline import Observed, Pipeline, choose
from pdd_router.policy.transfer import kv_bytes, transfer_seconds

# The demo's line and model: 100 Mb/s, 20 ms, 46,080 bytes a token.
LINE = {
    "kv_bytes_per_token": 46_080,
    "block_size": 32,
    "bits_per_second": 100_000_000,
    "round_trip_seconds": 0.02,
}


def observed(prompt: int, cached: int) -> Observed:
    return Observed(prompt_tokens=prompt, cached_at_prefill=cached, **LINE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "cached", "forced", "cannot", "relay_there", "expected"),
    [
        (1500, 0, None, None, True, Pipeline.RELAY),  # 69 MB take 5.6 s
        (1500, 1472, None, None, True, Pipeline.DIRECT),  # one block takes 0.14 s
        (100, 0, None, None, True, Pipeline.DIRECT),  # 5.9 MB: 0.49 s
        (160, 0, None, None, True, Pipeline.RELAY),  # 7.4 MB: 0.61 s
        (1500, 0, None, None, False, Pipeline.DIRECT),
        (1500, 0, Pipeline.DIRECT, None, True, Pipeline.DIRECT),
        (10, 0, Pipeline.RELAY, None, True, Pipeline.RELAY),
        (1500, 0, None, "tools", True, Pipeline.DIRECT),
        (1500, 0, Pipeline.RELAY, "tools", True, Pipeline.DIRECT),
    ],
)
def test_choice(
    prompt: int,
    cached: int,
    forced: Pipeline | None,
    cannot: str | None,
    relay_there: bool,
    expected: Pipeline,
) -> None:
    choice = choose(
        observed(prompt, cached),
        tolerated_wait_seconds=0.5,
        forced=forced,
        cannot_hand_off=cannot,
        relay_there=relay_there,
    )
    assert choice.pipeline is expected
    assert choice.reason


def test_whole_blocks_cross_the_line() -> None:
    # Measured on the real line: 1,500 tokens are 47 blocks.
    assert kv_bytes(1500, kv_bytes_per_token=46_080, block_size=32) == 69_304_320


def test_nothing_to_send_takes_no_time() -> None:
    assert transfer_seconds(0, bits_per_second=100, round_trip_seconds=1.0) == 0.0


def test_a_transfer_takes_a_round_trip_and_the_bytes() -> None:
    assert transfer_seconds(12_500_000, bits_per_second=100_000_000, round_trip_seconds=0.02) == pytest.approx(1.02)
