import pytest

from pdd_router.policy.sampling import after


def test_md_is_asked_for_the_rest() -> None:
    whole = {"max_tokens": 10, "min_tokens": 4, "temperature": 0.0}
    assert after(whole, 3) == {"max_tokens": 7, "min_tokens": 1, "temperature": 0.0}
    assert after(whole, 6) == {"max_tokens": 4, "min_tokens": 0, "temperature": 0.0}
    assert whole["max_tokens"] == 10


def test_nothing_left_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="max_tokens 3 reached"):
        after({"max_tokens": 3}, 3)


def test_without_bounds_nothing_changes() -> None:
    assert after({"temperature": 1.0, "max_tokens": None}, 3) == {
        "temperature": 1.0,
        "max_tokens": None,
    }
