import pytest

from pdd_router.policy.affinity import CHUNK, SLACK, Candidate, PrefixIndex, chunk_hashes, extends, pick


def test_the_engine_with_the_longest_prefix_is_picked() -> None:
    index = PrefixIndex()
    long, short = list(range(CHUNK * 4)), list(range(CHUNK * 2))
    index.record(chunk_hashes(long), "a")
    index.record(chunk_hashes(short), "b")
    matches = index.matches(chunk_hashes(long))
    assert matches == {"a": 4, "b": 2}
    assert pick([Candidate("a", 1), Candidate("b", 0)], matches) == "a"


def test_a_holder_that_is_much_busier_is_passed_over() -> None:
    assert pick([Candidate("a", SLACK), Candidate("b", 0)], {"a": 9}) == "a"
    assert pick([Candidate("a", SLACK + 1), Candidate("b", 0)], {"a": 9}) == "b"


def test_without_a_holder_the_idlest_is_picked() -> None:
    assert pick([Candidate("a", 2), Candidate("b", 1)], {}) == "b"
    with pytest.raises(ValueError, match="no engine"):
        pick([], {})


def test_a_gap_in_the_prefix_ends_the_match() -> None:
    index = PrefixIndex()
    hashes = chunk_hashes(list(range(CHUNK * 3)))
    index.record(hashes[:1] + hashes[2:], "a")
    assert index.matches(hashes) == {"a": 1}


def test_engines_that_are_gone_are_forgotten() -> None:
    index = PrefixIndex()
    hashes = chunk_hashes(list(range(CHUNK)))
    index.record(hashes, "a")
    index.record(hashes, "b")
    index.keep_only({"b"})
    assert index.matches(hashes) == {"b": 1}


def test_the_index_is_bounded() -> None:
    index = PrefixIndex(capacity=2)
    for start in range(3):
        index.record(chunk_hashes([start] * CHUNK), "a")
    assert index.matches(chunk_hashes([0] * CHUNK)) == {}
    assert index.matches(chunk_hashes([2] * CHUNK)) == {"a": 1}


@pytest.mark.parametrize(
    ("prompt", "earlier", "expected"),
    [
        ([1, 2, 3, 4], [1, 2, 3], True),  # the next turn of a session
        ([1, 2, 3, 4], [1, 2], True),
        ([1, 2, 3, 4, 5], [1, 2], False),  # most of it is new
        ([1, 9, 9, 9], [1, 2, 3, 4], False),  # a common system prompt only
        ([1, 2], [1, 2, 3], True),
        ([], [1], False),
        ([1], [], False),
    ],
)
def test_which_prompts_extend_another(prompt: list[int], earlier: list[int], expected: bool) -> None:
    assert extends(prompt, earlier) is expected
