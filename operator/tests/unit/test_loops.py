"""Loops: when they visit, when they end, and that they survive what their visits raise."""

import asyncio
from collections.abc import Callable

import pytest

from pdd_operator import loops as module
from pdd_operator.clusters.errors import UnreachableError
from pdd_operator.loops import Key, Loops

KEY = Key("Kind", "name", "namespace")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    monkeypatch.setattr(module, "_LONGEST_BACKOFF", 0.02)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.005)


async def _visits(loops: Loops, seen: list[Key], count: int) -> None:
    await _until(lambda: len(seen) >= count)
    await loops.close()


async def test_a_burst_of_events_is_one_more_visit() -> None:
    seen: list[Key] = []

    async def visit(key: Key) -> float | None:
        seen.append(key)
        return 60

    loops = Loops(visit)
    for _ in range(5):
        loops.start(KEY)
    await _visits(loops, seen, 1)
    assert seen == [KEY]


async def test_woken_by_kind_and_name() -> None:
    seen: list[Key] = []

    async def visit(key: Key) -> float | None:
        seen.append(key)
        return 60

    loops = Loops(visit)
    loops.start(KEY)
    await _until(lambda: len(seen) == 1)
    loops.wake("Kind", "another")
    loops.wake("Another")
    await asyncio.sleep(0.05)
    assert len(seen) == 1
    loops.wake("Kind", namespace="namespace")
    await _visits(loops, seen, 2)


@pytest.mark.parametrize("error", [UnreachableError("x"), ValueError("x"), TimeoutError()])
async def test_nothing_a_visit_raises_ends_the_loop(error: Exception) -> None:
    seen: list[Key] = []

    async def visit(key: Key) -> float | None:
        seen.append(key)
        raise error

    loops = Loops(visit)
    loops.start(KEY)
    await _visits(loops, seen, 3)


async def test_the_loop_of_a_gone_object_ends_and_a_namesake_starts_another() -> None:
    seen: list[Key] = []

    async def visit(key: Key) -> float | None:
        seen.append(key)
        return None

    loops = Loops(visit)
    loops.start(KEY)
    await _until(lambda: len(seen) == 1)
    loops.wake("Kind")
    await asyncio.sleep(0.05)
    assert len(seen) == 1
    loops.start(KEY)
    await _visits(loops, seen, 2)


async def test_a_hanging_visit_is_cut_off_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_VISIT_SECONDS", 0.05)
    seen: list[Key] = []

    async def visit(key: Key) -> float | None:
        seen.append(key)
        if key == KEY:
            await asyncio.sleep(60)
        return 0.01

    loops = Loops(visit)
    loops.start(KEY)
    loops.start(Key("Kind", "other"))
    await _until(lambda: seen.count(KEY) >= 3)
    await loops.close()
    assert len(seen) > 2 * seen.count(KEY)
