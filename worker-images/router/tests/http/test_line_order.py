"""The line's order, through both routers: who goes first, who is told, and that nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pdd_e2e.simulated.engine import KV_BYTES_PER_TOKEN, as_text, continuation
from pdd_router import timeouts
from pdd_router.errors import UpstreamError
from pdd_router.line.site import Site
from pdd_router.policy.order import Urgency

DIRECT = {"X-PDD-Pipeline": "P-MD", "X-PDD-Trace": "on"}
RELAY = {"X-PDD-Pipeline": "P-RLD-MD", "X-PDD-Trace": "on"}

# 800 tokens a second: half a second is 400, a piece 320, and 80 fit in beside one.
BITS_PER_SECOND = 800 * KV_BYTES_PER_TOKEN * 8
PIECE = 320
COUNT = 6


def prompt(tokens: int, seed: int) -> list[int]:
    return [seed * 10_000 + n for n in range(tokens)]


async def until(what: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.01)


@dataclass
class Thin:
    """Two sites with a thin line, on which nothing moves before `open` is set. What it carries, it carries at once."""

    sites: Any
    open: asyncio.Event

    @property
    def schedule(self) -> Any:
        return self.sites.front._sites._sites["site-b"].schedule

    @property
    def pulls(self) -> list[int]:
        """Prompt tokens of MD's pulls as they came."""
        return [len(r["token_ids"]) for r in self.sites.main.requests if _pulls(r)]

    @property
    def waiting(self) -> int:
        return len(self.schedule.order.waiting)

    def ask(self, ids: list[int], headers: dict[str, str]) -> "asyncio.Task[Any]":
        body = {"model": "m", "prompt": " ".join(map(str, ids)), "max_tokens": COUNT, "temperature": 0}
        return asyncio.create_task(self.sites.complete(body, headers))


def _pulls(request: dict[str, Any]) -> bool:
    return bool((request.get("kv_transfer_params") or {}).get("do_remote_prefill"))


async def right(answer: "asyncio.Task[Any]", ids: list[int]) -> Any:
    async with asyncio.timeout(20):
        status, body = await answer
    assert (status, body["choices"][0]["text"]) == (200, as_text(continuation(ids, COUNT)))
    return body["pdd"]


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def thin(start: Any) -> AsyncIterator[Callable[..., Awaitable[Thin]]]:
    begun: list[Thin] = []

    async def begin(**changes: Any) -> Thin:
        gate = asyncio.Event()
        main = {"bytes_per_second": 1e9, "line_is_open": gate, **changes.pop("main", {})}
        sites = await start(bits_per_second=BITS_PER_SECOND, main=main, **changes)
        begun.append(Thin(sites, gate))
        return begun[-1]

    yield begin
    for each in begun:
        each.open.set()
        await until(lambda: len(each.schedule) == 0)  # noqa: B023 - waited for in the loop
        assert not each.schedule.order.under_way
        assert not each.schedule.order.waiting
        assert not each.sites.front._sites._sites["site-b"].held._on_its_way
    assert metric("pdd_transfers_in_flight") == 0
    assert metric("pdd_transfers_waiting") == 0


async def test_a_small_transfer_passes_large_ones(thin: Any) -> None:
    """One fits in beside what is on the line; the next waits and goes before what came earlier."""
    line = await thin()
    first, second = prompt(1500, 1), prompt(1400, 2)
    beside, small = prompt(64, 3), prompt(200, 4)
    answers = [(line.ask(first, DIRECT), first)]
    await until(lambda: line.pulls == [PIECE])
    answers.append((line.ask(second, DIRECT), second))
    await until(lambda: line.waiting == 1)
    answers.append((line.ask(beside, DIRECT), beside))
    await until(lambda: line.pulls == [PIECE, 64])
    answers.append((line.ask(small, DIRECT), small))
    await until(lambda: line.waiting == 2)
    line.open.set()
    for answer, ids in answers:
        await right(answer, ids)
    assert line.pulls[:3] == [PIECE, 64, 200]
    # With a piece of it there `first` has less left than `second`, so all of it goes before that.
    assert line.pulls[3:] == [640, 960, 1280, 1500, 320, 640, 960, 1280, 1400]


@pytest.mark.parametrize("headers", [DIRECT, RELAY], ids=["P-MD", "P-RLD-MD"])
async def test_a_large_one_goes_piece_by_piece_and_is_counted_once(thin: Any, headers: dict[str, str]) -> None:
    line = await thin(relay={"token_seconds": 0.05})
    line.open.set()
    ids = prompt(1020, 1)
    hit, sent = metric("pdd_cached_tokens_total", role="main-decode"), metric("pdd_line_kv_bytes_total")
    predictions = metric("pdd_transfer_prediction_ratio_count")
    trace = await right(line.ask(ids, headers), ids)
    assert line.sites.main.pulled == [(320, 320), (640, 320), (1020, 380)]
    assert trace["line_bytes"] == 1024 * KV_BYTES_PER_TOKEN
    assert trace["cached_at_main"] == 0
    assert metric("pdd_cached_tokens_total", role="main-decode") == hit
    assert metric("pdd_line_kv_bytes_total") == sent + 1024 * KV_BYTES_PER_TOKEN
    assert metric("pdd_transfer_prediction_ratio_count") == predictions + 1
    # The session's next turn, of which what MD decoded is known to be there too.
    more = ids + continuation(ids, COUNT) + prompt(50, 9)
    assert line.sites.front._sites._sites["site-b"].held.sent(more) == 1024
    trace = await right(line.ask(more, headers), more)
    assert trace["cached_at_main"] == 992
    assert len(line.pulls) == 4


async def test_equal_prompts_cross_the_line_once(thin: Any) -> None:
    """At the same time; of what the other one brought only last blocks go again."""
    line = await thin()
    ids = prompt(1400, 1)
    answers = [line.ask(ids, DIRECT) for _ in range(2)]
    await until(lambda: len(line.schedule) == 2)
    line.open.set()
    for answer in answers:
        await right(answer, ids)
    sent = sum(lacked for _, lacked in line.sites.main.pulled)
    assert sent < 1.4 * len(ids)
    await until(lambda: len(line.schedule) == 0)


async def test_those_who_leave_while_they_wait_or_transfer_are_gone(thin: Any) -> None:
    line = await thin()
    on_the_line, waits, stays = prompt(1000, 1), prompt(900, 2), prompt(800, 3)
    first = line.ask(on_the_line, DIRECT)
    await until(lambda: line.pulls == [PIECE])
    second = line.ask(waits, DIRECT)
    third = line.ask(stays, DIRECT)
    await until(lambda: line.waiting == 2)
    second.cancel()
    await until(lambda: line.waiting == 1)
    # Its leases: of the whole prompt and of the first piece.
    await until(lambda: len(line.sites.prefill.released) == 2)
    first.cancel()
    await until(lambda: line.pulls == [PIECE, PIECE])
    # The whole prompt's, and the next piece's, which was taken ahead; MD has seen the first piece's.
    await until(lambda: len(line.sites.prefill.released) == 4)
    line.open.set()
    await right(third, stays)
    assert {tokens for tokens, _ in line.sites.main.pulled} <= {320, 640, 800}


@pytest.mark.parametrize("headers", [DIRECT, RELAY], ids=["P-MD", "P-RLD-MD"])
async def test_a_lease_that_grew_too_old_in_the_wait_is_taken_anew(thin: Any, headers: dict[str, str]) -> None:
    """Leases of 1.5 s are usable for 1 s, of which a read is asked for in the first three quarters."""
    short = {"facts": {"kv_lease_duration": 1.5}}
    line = await thin(prefill=short, relay={**short, "token_seconds": 0.1}, main=short)
    large, ids = prompt(350, 1), prompt(300, 2)
    first = line.ask(large, DIRECT)
    await until(lambda: line.pulls == [350])
    answer = line.ask(ids, headers)
    await until(lambda: line.waiting == 1)
    leases = _leases(line, ids)
    await until(lambda: len(_leases(line, ids)) == len(leases) + 2)
    assert line.waiting == 1
    line.open.set()
    await right(first, large)
    await right(answer, ids)
    [read] = [r["kv_transfer_params"] for r in line.sites.main.requests if _pulls(r) and len(r["token_ids"]) == 300]
    # P numbers its leases by its requests.
    assert read["remote_request_id"] == f"lease-{_leases(line, ids)[-1]}"
    await until(lambda: len(line.sites.prefill.released) == 2)


def _leases(line: Thin, ids: list[int]) -> list[int]:
    return [number for number, r in enumerate(line.sites.prefill.requests, 1) if r["token_ids"] == ids]


async def test_an_answer_that_is_complete_lets_its_transfer_wait_for_others(thin: Any) -> None:
    """RLD said it all; a user who has seen nothing goes first, though his is larger."""
    line = await thin()
    blocks, done, waits = prompt(390, 1), prompt(200, 2), prompt(300, 3)
    first = line.ask(blocks, DIRECT)
    await until(lambda: line.pulls == [390])
    await right(line.ask(done, RELAY), done)
    [job] = line.schedule.order.waiting
    assert job.urgency is Urgency.NOBODY_WAITS
    third = line.ask(waits, DIRECT)
    await until(lambda: line.waiting == 2)
    line.open.set()
    await right(first, blocks)
    await right(third, waits)
    await until(lambda: len(line.schedule) == 0)
    assert line.pulls == [390, 300, 200]


async def test_whose_rld_fails_waits_for_the_line_as_one_who_has_seen_nothing(thin: Any) -> None:
    line = await thin(relay={"dies_after_tokens": 2, "ends_with": "error"})
    blocks, small, stalled = prompt(390, 1), prompt(200, 2), prompt(300, 3)
    first = line.ask(blocks, DIRECT)
    await until(lambda: line.pulls == [390])
    answer = line.ask(stalled, RELAY)
    await until(lambda: [job.urgency for job in line.schedule.order.waiting] == [Urgency.USER_WAITS])
    line.sites.relay.dies_after_tokens = None
    done = line.ask(small, RELAY)
    await until(lambda: line.waiting == 2)
    await right(done, small)
    line.open.set()
    await right(first, blocks)
    await right(answer, stalled)
    await until(lambda: len(line.schedule) == 0)
    assert line.pulls == [390, 300, 200]


async def test_a_busy_line_sends_a_request_by_rld(thin: Any) -> None:
    """Its own transfer takes 0.12 s; but what is before it takes longer."""
    line = await thin(tolerated_wait_millis=300)
    line.open.set()
    alone = prompt(96, 7)
    trace = await right(line.ask(alone, {"X-PDD-Trace": "on"}), alone)
    assert trace["pipeline"] == "P-MD"
    line.open.clear()
    first = line.ask(prompt(390, 1), DIRECT)
    await until(lambda: line.pulls[-1:] == [390])
    ids = prompt(96, 2)
    trace = await right(line.ask(ids, {"X-PDD-Trace": "on"}), ids)
    assert trace["pipeline"] == "P-RLD-MD"
    line.open.set()
    await right(first, prompt(390, 1))


async def test_a_silent_site_lets_nobody_wait_for_its_line(thin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RLD answers to the end; when the site is back, transfers begin one at a time."""
    line = await thin(relay={"token_seconds": 0.1})
    large, ids = prompt(390, 1), prompt(300, 2)
    first = line.ask(large, RELAY)
    await until(lambda: line.pulls == [390])
    second = line.ask(ids, RELAY)
    await until(lambda: line.waiting == 1)

    async def silence(self: Site) -> None:
        raise UpstreamError(self.name, "silent")

    with monkeypatch.context() as while_silent:
        while_silent.setattr(Site, "ping", silence)
        while_silent.setattr(timeouts, "CUT_OFF_SECONDS", 0.2)
        await until(lambda: len(line.schedule) == 0)
        for answer, asked in ((first, large), (second, ids)):
            assert (await right(answer, asked))["eager_tokens"] == COUNT
    line.open.set()
    assert line.schedule.order.limit == 1
    await until(lambda: bool(line.sites.front._sites.reachable))
    await right(line.ask(again := prompt(300, 3), DIRECT), again)
    assert line.schedule.order.limit == 2
