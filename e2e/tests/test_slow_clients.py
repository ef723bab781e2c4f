"""Clients that are slow on purpose keep nothing: each is ended in its time, and others do not notice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.asking import ask
from pdd_e2e.engines import Role, engines
from pdd_e2e.environment import Sites
from pdd_e2e.prompts import prompt
from pdd_e2e.slow_clients import slow

pytestmark = pytest.mark.e2e

BODY_SECONDS, HEAD_SECONDS, READING_SECONDS = 20, 60, 60
LINGER_SECONDS = 10
"""For so long the rest of a refused body is read: a client that sends it all at once then sees the answer."""
LATE = 10
"""Seconds by which a busy machine may be late."""
PATIENCE = 150.0


@pytest.fixture
def url(sites: Sites, tiny: OpenAI) -> Iterator[str]:
    with running.endpoint(sites, "tiny") as found:
        yield found


def test_slow_in_every_way(sites: Sites, url: str) -> None:
    parts = engines(sites, "tiny")
    parts.wait_free(60)
    pod = Role(sites.a, "tiny", "front-router").pod()
    short = {"model": "tiny", "prompt": "slow " * 50, "max_tokens": 4}
    # More than the buffers of a connection hold, and fast: loopback's have more than a megabyte.
    long = {"model": "tiny", "prompt": prompt(20, 1), "max_tokens": 3900, "stream": True, "logprobs": 20}
    long |= {"ignore_eos": True, "n": 8, "temperature": 1}
    with ThreadPoolExecutor() as pool:
        ways = {"head": (short, 3), "body": (short, 3), "reading": (long, 1)}
        clients = {
            how: [pool.submit(slow, sites.a, pod, how, body, patience=PATIENCE) for _ in range(count)]
            for how, (body, count) in ways.items()
        }
        others = [ask(url, "tiny", prompt(50, n), max_tokens=4) for n in range(20)]
        ends = {how: [client.result() for client in each] for how, each in clients.items()}
    print(ends)
    assert all(other.complete for other in others)
    for status, seconds in ends["body"]:
        assert status == "HTTP/1.1 408 Request Timeout"
        assert BODY_SECONDS - 1 < seconds < BODY_SECONDS + LINGER_SECONDS + LATE
    for status, seconds in ends["head"]:
        assert status == ""
        assert HEAD_SECONDS - 1 < seconds < HEAD_SECONDS + LATE
    for _, seconds in ends["reading"]:
        assert READING_SECONDS - 1 < seconds < PATIENCE
    parts.wait_free(5)
