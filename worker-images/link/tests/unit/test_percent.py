import pytest

from pdd_link.document import percent
from pdd_link.measure.echoes import Loss


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (None, None),
        (Loss(0, 0), None),
        (Loss(0, 7), "0"),
        (Loss(7, 7), "100"),
        (Loss(1, 1000), "0.1"),
        (Loss(1, 3), "33.333"),
        (Loss(1, 2_000_000), "0"),
        (Loss(1, 10), "10"),
    ],
)
def test_a_decimal_without_what_says_nothing(loss: Loss | None, told: str | None) -> None:
    assert percent(loss) == told
