from hypothesis import given
from hypothesis import strategies as st

from pdd_link.measure.pace import Pace


@given(st.integers(10**5, 10**12), st.integers(1, 4), st.integers(1, 4), st.integers(1280, 65535))
def test_all_agents_together_stay_below_a_thousandth_of_the_line(
    bandwidth: int, peers: int, routers: int, mtu: int
) -> None:
    pace = Pace(bandwidth, peers=peers, routers=routers)
    pairs = 2 * peers
    # In one direction: requests of the one end, replies to the other's.
    echoes = pairs * 2 * 2 * (60 + 8 + 40 + 38) / pace.echo_every
    full_size = pairs * 2 * (mtu + 38) / pace.full_size_every(mtu)
    handshakes = 2 * 2 * routers * 4000 / pace.handshake_every
    assert 8 * (echoes + full_size + handshakes) <= bandwidth / 1000 * (1 + 1e-9)
