"""A client that leaves takes its request with it: within 5 s no engine holds anything for it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx
import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.asking import ask
from pdd_e2e.engines import Engines, engines
from pdd_e2e.environment import Sites
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

FREE_SECONDS = 5.0
RELAY = {"X-PDD-Pipeline": "P-RLD-MD"}
DIRECT = {"X-PDD-Pipeline": "P-MD"}


@pytest.fixture
def held(sites: Sites, tiny: OpenAI) -> Iterator[Engines]:
    found = engines(sites, "tiny")
    found.wait_free(60)
    yield found
    found.wait_free(60)


@pytest.fixture(scope="module")
def url(sites: Sites, tiny: OpenAI) -> Iterator[str]:
    with running.endpoint(sites, "tiny") as found:
        yield found


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("headers", [DIRECT, RELAY], ids=["P-MD", "P-RLD-MD"])
@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.3, 0.6, 1.0, 1.6])
def test_whenever_a_client_leaves(
    url: str, held: Engines, seconds: float, headers: dict[str, str], *, stream: bool
) -> None:
    """In the renderer, in prefill, between P's answer and the pull, in the transfer, in decode: wherever it then is."""
    ask(url, "tiny", prompt(3000, seed=7), max_tokens=1000, stream=stream, headers=headers, leave_after_seconds=seconds)
    held.wait_free(FREE_SECONDS)


@pytest.mark.parametrize(("cut", "leave_after"), [(40, 10), (10, 10), (5, 30)], ids=["on RLD", "at the cut", "on MD"])
def test_wherever_the_answer_is(url: str, held: Engines, cut: int, leave_after: int) -> None:
    headers = {**RELAY, "X-PDD-Cut": str(cut)}
    left = ask(url, "tiny", prompt(500, seed=8), max_tokens=1000, headers=headers, leave_after_tokens=leave_after)
    assert left.status == 200
    assert left.finish_reason is None
    held.wait_free(FREE_SECONDS)


def test_a_storm_of_fifty(url: str, held: Engines) -> None:
    """Fifty are at work or wait when all leave; throughput is back within 10 s."""

    def answer(seed: int) -> float:
        outcome = ask(url, "tiny", prompt(200, seed=seed), max_tokens=16)
        assert outcome.complete, outcome
        return outcome.seconds

    answer(0)
    calm = answer(1)
    with ThreadPoolExecutor(50) as pool:
        for n in range(50):
            pool.submit(ask, url, "tiny", prompt(1500, seed=n), max_tokens=1000, leave_after_seconds=2.0)
    left = monotonic()
    after = answer(2)
    while after > max(3 * calm, calm + 1):
        assert monotonic() - left < 10, f"{after:.2f} s an answer, {calm:.2f} s before the storm"
        after = answer(3)
    held.wait_free(FREE_SECONDS)


def test_what_is_refused_leaves_no_lease(url: str, held: Engines) -> None:
    """Nothing of these gets as far as P."""
    before = held.prefill.metrics()["vllm:request_success_total"]
    refused = [
        (b'{"model": "tiny", "prompt": [1', 400),
        (b"[" * 100_000, 400),
        (b'{"model": "tiny", "prompt": "' + b"x" * 10_000_000 + b'"}', 413),
        (b'{"model": "tiny", "prompt": 7}', 400),
        (b'{"model": "other", "prompt": "x"}', 404),
    ]
    for body, status in refused:
        answer = httpx.post(
            f"{url}/v1/completions", content=body, headers={"Content-Type": "application/json"}, timeout=60
        )
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["code"] == status
    assert held.prefill.metrics()["vllm:request_success_total"] == before
    assert not held.held()
