from hypothesis import given
from hypothesis import strategies as st

from pdd_link.measure.path_mtu import FLOOR, PathMTU

sizes = st.integers(576, 9216)


@given(st.integers(FLOOR, 9216), sizes, st.lists(st.booleans(), max_size=60))
def test_whatever_was_believed_the_largest_that_passes_is_found(ceiling: int, limit: int, noise: list[bool]) -> None:
    path = PathMTU(ceiling)
    for passed in noise:
        (path.passed if passed else path.missed)(path.next_size)
    for _ in range(100):
        size = path.next_size
        assert size <= ceiling
        (path.passed if size <= limit else path.missed)(size)
    assert path.passes == (min(limit, ceiling) if limit >= FLOOR else None)
    # While a bound is tried anew it may be unknown for a moment, never wrong.
    assert path.full_size_passes in (None, limit >= ceiling)
