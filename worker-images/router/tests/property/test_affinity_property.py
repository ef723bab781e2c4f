from hypothesis import given
from hypothesis import strategies as st

from pdd_router.policy.affinity import SLACK, Candidate, pick

candidates = st.lists(
    st.builds(Candidate, st.sampled_from("abcdef"), st.integers(0, 50)),
    min_size=1,
    unique_by=lambda c: c.name,
)


@given(candidates, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 100)))
def test_the_pick_is_there_and_never_much_busier_than_the_idlest(
    there: list[Candidate], matches: dict[str, int]
) -> None:
    picked = {c.name: c for c in there}[pick(there, matches)]
    assert picked.in_flight <= min(c.in_flight for c in there) + SLACK


@given(candidates, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 100)))
def test_the_pick_does_not_depend_on_order(there: list[Candidate], matches: dict[str, int]) -> None:
    assert pick(there, matches) == pick(list(reversed(there)), matches)
