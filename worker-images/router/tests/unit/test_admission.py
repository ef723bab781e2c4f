from hypothesis import given
from hypothesis import strategies as st

from pdd_router.policy.admission import Claim, Room, blocks_of


def test_who_does_not_fit_waits_in_order() -> None:
    room = Room(capacity_blocks=10, most_waiting=2)
    first, second, third = (room.claim(n) for n in (6, 6, 3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.granted, second.granted, third.granted) == (True, False, False)  # the third does not pass the second
    assert room.claim(1) is None
    assert room.give_back(first) == [second, third]


def test_a_wait_can_end_without_room() -> None:
    room = Room(capacity_blocks=10, most_waiting=5)
    first, second, third = (room.claim(n) for n in (8, 9, 2))
    assert first is not None
    assert second is not None
    assert third is not None
    assert room.give_back(second) == [third]


def test_what_fits_no_engine_is_vllms_to_refuse() -> None:
    room = Room(capacity_blocks=10, most_waiting=5)
    claim = room.claim(11)
    assert claim is not None
    assert claim.granted


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 5)), max_size=60))
def test_no_more_than_there_is_and_nobody_forgotten(steps: list[tuple[int, int]]) -> None:
    room = Room(capacity_blocks=10, most_waiting=100)
    known: list[Claim] = []
    for blocks, back in steps:
        claim = room.claim(blocks)
        assert claim is not None
        known.append(claim)
        if back < len(known):
            room.give_back(known.pop(back))
        granted = [claim for claim in known if claim.granted]
        assert room.taken == sum(claim.blocks for claim in granted)
        assert room.taken <= 10 or len(granted) == 1
        assert not known or granted
    while known:
        granted = [claim for claim in known if claim.granted]
        assert granted  # whoever waits, somebody works
        known.remove(granted[0])
        room.give_back(granted[0])
    assert room.taken == 0


def test_blocks_are_whole_and_the_answer_needs_one() -> None:
    assert [blocks_of(tokens, 32) for tokens in (1, 32, 33)] == [2, 2, 3]
