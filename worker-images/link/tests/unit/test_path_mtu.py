import pytest

from pdd_link.measure.path_mtu import PathMTU


def walk(path: PathMTU, limit: int, steps: int) -> list[int]:
    tried = []
    for _ in range(steps):
        size = path.next_size
        tried.append(size)
        (path.passed if size <= limit else path.missed)(size)
    return tried


def test_a_sound_path_is_tried_in_full_size_only() -> None:
    path = PathMTU(1500)
    assert path.full_size_passes is None
    assert walk(path, 1500, 5) == [1500] * 5
    assert (path.passes, path.full_size_passes) == (1500, True)


def test_three_misses_are_a_black_hole_and_its_edge_is_bisected() -> None:
    path = PathMTU(1500)
    assert walk(path, 1400, 24) == [1500] * 3 + [1280, 1390] + [1445] * 3 + [1417] * 3 + [1403] * 3 + [
        1396, 1399] + [1401] * 3 + [1400, 1401, 1500, 1400, 1401]  # fmt: skip
    assert (path.passes, path.full_size_passes) == (1400, False)


def test_two_misses_are_loss() -> None:
    path = PathMTU(1500)
    for _ in range(5):
        path.missed(1500)
        path.missed(1500)
        path.passed(1500)
    assert path.full_size_passes


@pytest.mark.parametrize(("limit", "passes"), [(1500, 1500), (1279, None), (1280, 1280), (1350, 1350)])
def test_a_path_that_changes_is_followed(limit: int, passes: int | None) -> None:
    path = PathMTU(1500)
    walk(path, 1400, 60)
    walk(path, limit, 60)
    assert (path.passes, path.full_size_passes) == (passes, limit == 1500)


def test_interfaces_with_less_than_the_floor() -> None:
    path = PathMTU(1000)
    walk(path, 1000, 1)
    assert path.full_size_passes
    walk(path, 900, 10)
    assert (path.passes, path.full_size_passes) == (None, False)
