import pytest

from pdd_link.measure.pace import Pace


@pytest.mark.parametrize(
    ("bandwidth", "peers", "echo", "full_size", "handshake"),
    [
        (10**10, 2, 0.1, 2.0, 5.0),
        (10**9, 2, 0.1, 2.0, 5.0),
        (300 * 10**6, 1, 0.1, 2.0, 5.0),
        (10**8, 2, 0.267, 6.56, 8.53),
        (10**8, 1, 0.133, 3.28, 8.53),
        (10**7, 2, 2.67, 65.6, 85.3),
    ],
)
def test_probes_are_rarer_on_thin_lines(
    bandwidth: int, peers: int, echo: float, full_size: float, handshake: float
) -> None:
    pace = Pace(bandwidth, peers=peers, routers=1)
    assert pace.echo_every == pytest.approx(echo, rel=0.01)
    assert pace.full_size_every(1500) == pytest.approx(full_size, rel=0.01)
    assert pace.handshake_every == pytest.approx(handshake, rel=0.01)
