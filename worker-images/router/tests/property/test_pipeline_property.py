from hypothesis import given
from hypothesis import strategies as st

from pdd_router.policy.pipeline import Observed, Pipeline, choose


@given(
    prompt=st.integers(1, 200_000),
    cached=st.integers(0, 200_000),
    wait=st.floats(0, 60),
    rate=st.integers(1_000_000, 100_000_000_000),
)
def test_a_better_hit_never_sends_a_direct_request_to_the_relay(
    prompt: int, cached: int, wait: float, rate: int
) -> None:
    def pipeline(hit: int) -> Pipeline:
        seen = Observed(prompt, min(hit, prompt), 46_080, 32, rate, 0.02)
        return choose(seen, tolerated_wait_seconds=wait, forced=None, cannot_hand_off=None, relay_there=True).pipeline

    if pipeline(cached) is Pipeline.DIRECT:
        assert pipeline(cached + 32) is Pipeline.DIRECT
