"""Every part killed or stopped at work: right tokens or a clean error, in bounds; never a wrong token, never a hang."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from openai import OpenAI

from pdd_e2e import line, running
from pdd_e2e.asking import Outcome, ask
from pdd_e2e.client import complete
from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.engines import Engines, Role, engines
from pdd_e2e.environment import Sites
from pdd_e2e.kube import wait_for
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

RELAY, DIRECT = {"X-PDD-Pipeline": "P-RLD-MD"}, {"X-PDD-Pipeline": "P-MD"}
TOKENS = 400
# A request that lost its engine looks for another one for 30 s; an engine that hangs is found out after 20 s.
BOUND_SECONDS = 75.0


@pytest.fixture(scope="module")
def parts(sites: Sites, tiny: OpenAI) -> Engines:
    return engines(sites, "tiny")


@pytest.fixture
def url(sites: Sites, tiny: OpenAI, parts: Engines) -> Iterator[str]:
    """Of a deployment that is whole before and after. What breaks one engine restarts no other."""
    with running.endpoint(sites, "tiny") as found:
        wait_whole(found, parts)
        before = parts.lives()
        yield found
    with running.endpoint(sites, "tiny") as found:
        wait_whole(found, parts)
        parts.wait_free(90)
        after = parts.lives()
    restarted = [role for role, lives in before.items() if after[role] != lives]
    assert len(restarted) <= 1, f"{before} became {after}"


def wait_whole(url: str, parts: Engines) -> None:
    """All engines are there, and both pipelines answer."""
    for role in (parts.prefill, parts.relay, parts.main):
        role.pod()
    for headers in (RELAY, DIRECT):
        wait_for(
            "an answer", lambda h=headers: ask(url, "tiny", [7] * 40, max_tokens=4, headers=h).complete, seconds=120
        )


@pytest.fixture(scope="module")
def right(alone: OpenAI) -> Callable[[int, int], list[int]]:
    """A single engine's answer to the prompt of this length and seed."""
    known: dict[tuple[int, int], list[int]] = {}

    def answer(length: int, seed: int) -> list[int]:
        if (length, seed) not in known:
            asked = complete(alone, "tiny", prompt(length, seed), max_tokens=TOKENS, trace=False, ignore_eos=True)
            known[length, seed] = asked.token_ids
        return known[length, seed]

    return answer


class Asked:
    """A request under way in a thread, and what of it has come so far."""

    def __init__(self, pool: ThreadPoolExecutor, url: str, length: int, seed: int, headers: dict[str, str]):
        self.prompt = prompt(length, seed)
        self.came: Outcome = Outcome()
        self._done: Future[Outcome] = pool.submit(
            ask, url, "tiny", self.prompt, max_tokens=TOKENS, headers=headers, into=self.came, ignore_eos=True
        )

    def wait_tokens(self, count: int) -> None:
        wait_for(f"{count} tokens", lambda: len(self.came.ids) >= count or self._done.done(), seconds=60, every=0.01)

    def outcome(self) -> Outcome:
        return self._done.result(timeout=BOUND_SECONDS + 30)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def assert_right(outcome: Outcome, right: list[int]) -> None:
    assert outcome.complete, outcome
    assert outcome.ids == right
    assert outcome.seconds < BOUND_SECONDS


def assert_right_or_clean(outcome: Outcome, right: list[int]) -> None:
    """All tokens, or a beginning of them and an error that says so."""
    assert outcome.ids == right[: len(outcome.ids)]
    assert outcome.complete or outcome.error is not None, outcome
    assert outcome.seconds < BOUND_SECONDS
    if outcome.status != 200:
        assert outcome.status in (502, 503), outcome


def test_rld_killed_in_its_stream(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]]
) -> None:
    asked = Asked(pool, url, 3000, 1, {**RELAY, "X-PDD-Cut": "300"})
    asked.wait_tokens(20)
    parts.relay.signal_core(signal.SIGKILL)
    assert_right(asked.outcome(), right(3000, 1))
    assert asked.came.trace["eager_tokens"] < 300
    assert asked.came.trace["engines"]["main"]


def test_md_killed_before_the_handoff(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]]
) -> None:
    """RLD answers to the end, for it is the only one left."""
    asked = Asked(pool, url, 1000, 2, {**RELAY, "X-PDD-Cut": "60"})
    asked.wait_tokens(10)
    parts.main.kill()
    assert_right(asked.outcome(), right(1000, 2))


@pytest.mark.parametrize("headers", [{**RELAY, "X-PDD-Cut": "20"}, DIRECT], ids=["P-RLD-MD", "P-MD"])
def test_md_killed_while_it_decodes(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]], headers: dict[str, str]
) -> None:
    asked = Asked(pool, url, 1000, 3, headers)
    asked.wait_tokens(60)
    parts.main.kill()
    assert_right(asked.outcome(), right(1000, 3))
    assert asked.came.trace["trouble"]


def test_md_killed_where_going_on_is_not_exact(url: str, pool: ThreadPoolExecutor, parts: Engines) -> None:
    """A frequency penalty counts MD's own output."""
    came = Outcome()
    asked = pool.submit(
        ask, url, "tiny", prompt(500, 4), max_tokens=TOKENS, into=came, frequency_penalty=0.5, ignore_eos=True
    )
    wait_for("40 tokens", lambda: len(came.ids) >= 40, seconds=60, every=0.01)
    parts.main.kill()
    outcome = asked.result(BOUND_SECONDS)
    assert outcome.finish_reason is None
    assert outcome.error is not None
    assert "frequency_penalty" in outcome.error["message"]


def wait_prefilled(parts: Engines) -> None:
    """P has nothing to compute any more, and keeps the blocks that it computed."""
    wait_for("P's lease", lambda: parts.prefill.held().keys() == {"vllm:kv_cache_usage_perc"}, seconds=30, every=0.05)


def test_p_killed_in_prefill(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]]
) -> None:
    """Its core stands still, so the prompt is there and not done."""
    parts.prefill.signal_core(signal.SIGSTOP)
    asked = [Asked(pool, url, 3000, 5, headers) for headers in (RELAY, DIRECT)]
    time.sleep(2)
    parts.prefill.kill()
    for each in asked:
        outcome = each.outcome()
        assert_right_or_clean(outcome, right(3000, 5))
        assert outcome.complete or "prefill" in str(outcome.error), outcome


@pytest.mark.parametrize("headers", [{**RELAY, "X-PDD-Cut": "20"}, DIRECT], ids=["P-RLD-MD", "P-MD"])
def test_p_killed_before_md_has_pulled(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]], headers: dict[str, str]
) -> None:
    """MD's core stands still until P is gone, and then computes the prompt itself."""
    md = parts.main.pod()
    parts.main.signal_core(signal.SIGSTOP, md)
    try:
        asked = Asked(pool, url, 3000, 9, headers)
        asked.wait_tokens(20) if headers is not DIRECT else wait_prefilled(parts)
        parts.prefill.kill()
    finally:
        parts.main.signal_core(signal.SIGCONT, md)
    assert_right(asked.outcome(), right(3000, 9))


@pytest.mark.skipif(not line.countable(), reason="asks the line for its counters and slows it down (PDD_E2E_LINE)")
@pytest.mark.parametrize("headers", [{**RELAY, "X-PDD-Cut": "20"}, DIRECT], ids=["P-RLD-MD", "P-MD"])
def test_p_killed_in_the_transfer(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]], headers: dict[str, str]
) -> None:
    """Nine megabytes of KV cross a line that takes 9 s for them; after one or more P is killed."""
    parts.wait_free(30)
    with line.changed(rate="8mbit"):
        began = line.now().a_to_b
        asked = Asked(pool, url, 3000, 10, headers)
        wait_for("a megabyte on the line", lambda: line.now().a_to_b - began > 1e6, seconds=30, every=0.05)
        parts.prefill.kill()
        assert line.now().a_to_b - began < 5e6
    assert_right(asked.outcome(), right(3000, 10))


def test_the_main_router_killed(
    sites: Sites, url: str, pool: ThreadPoolExecutor, right: Callable[..., list[int]]
) -> None:
    router = Role(sites.b, "tiny", "main-router")
    asked = [Asked(pool, url, 800, 6, headers) for headers in ({**RELAY, "X-PDD-Cut": "30"}, DIRECT)]
    for each in asked:
        each.wait_tokens(50)
    router.kill()
    for each in asked:
        assert_right(each.outcome(), right(800, 6))


def test_the_front_router_killed(sites: Sites, url: str, pool: ThreadPoolExecutor) -> None:
    """Its clients' connections break; another replica's go on, and nobody's KV stays."""
    sites.a.kubectl(
        "-n", NAMESPACE, "patch", running.KIND, "tiny", "--type=merge", "-p", '{"spec":{"router":{"replicas":2}}}'
    )
    running.wait_ready(sites.a, "tiny", print)
    first, second = (str(pod["metadata"]["name"]) for pod in running.pods(sites.a, "tiny", "front-router"))
    with (
        sites.a.port_forward(NAMESPACE, f"pod/{first}", 8000) as one,
        sites.a.port_forward(NAMESPACE, f"pod/{second}", 8000) as other,
    ):
        dying, living = (Asked(pool, each, 500, 7, DIRECT) for each in (one, other))
        for asked in (dying, living):
            asked.wait_tokens(20)
        sites.a.kubectl("-n", NAMESPACE, "delete", "pod", first, "--grace-period=0", "--force", "--wait=false")
        assert living.outcome().complete
        assert dying.outcome().broken
    sites.a.kubectl(
        "-n", NAMESPACE, "patch", running.KIND, "tiny", "--type=merge", "-p", '{"spec":{"router":{"replicas":1}}}'
    )


@pytest.mark.parametrize("role", ["prefill", "relay", "main"])
def test_an_engine_that_hangs(
    url: str, pool: ThreadPoolExecutor, parts: Engines, right: Callable[..., list[int]], role: str
) -> None:
    """Its core is stopped for longer than anybody waits for it, and goes on afterwards."""
    engine: Role = getattr(parts, role)
    pod = engine.pod()
    asked = Asked(pool, url, 700, 8, {**RELAY, "X-PDD-Cut": "40"} if role != "main" else DIRECT)
    if role != "prefill":
        asked.wait_tokens(20)
    engine.signal_core(signal.SIGSTOP, pod)
    try:
        outcome = asked.outcome()
        assert_right_or_clean(outcome, right(700, 8))
        if role != "prefill":
            assert outcome.complete, outcome
    finally:
        engine.signal_core(signal.SIGCONT, pod)

    def served() -> bool:
        back = ask(url, "tiny", prompt(700, 8), max_tokens=8, headers=RELAY, ignore_eos=True)
        return back.complete and back.ids == right(700, 8)[:8]

    wait_for("the engine to be used again", served, seconds=60)
