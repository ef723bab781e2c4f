"""Three hundred requests while everything breaks: no wrong token, no request that hangs, nothing held afterwards."""

import os
import time
from collections.abc import Callable

import pytest
from openai import OpenAI

from pdd_e2e import line, running
from pdd_e2e.chaos import MOST_TOKENS, PROMPTS, Breakage, faults, hang, plan, run
from pdd_e2e.client import complete
from pdd_e2e.engines import Role, engines
from pdd_e2e.environment import Sites
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

REQUESTS = 300
CLIENTS = 16
SEED = int(os.environ.get("PDD_E2E_CHAOS_SEED", "1"))


def cut_the_line(seconds: float) -> None:
    with line.cut():
        time.sleep(seconds)


def at_once(kill: Callable[[], None]) -> Callable[[float], None]:
    return lambda _seconds: kill()


def test_nothing_that_breaks_gives_a_wrong_token(sites: Sites, tiny: OpenAI, alone: OpenAI) -> None:
    parts = engines(sites, "tiny")
    running.wait_ready(sites.a, "tiny", print)
    known = {
        (length, seed): complete(
            alone, "tiny", prompt(length, seed), max_tokens=MOST_TOKENS, trace=False, ignore_eos=True
        ).token_ids
        for length, seed in PROMPTS
    }
    router = Role(sites.b, "tiny", "main-router")
    breakages = [
        Breakage("P", "hangs", hang(parts.prefill), (1, 25)),
        Breakage("P", "is killed", at_once(parts.prefill.kill)),
        Breakage("RLD", "hangs", hang(parts.relay), (1, 25)),
        Breakage("RLD", "is killed", at_once(parts.relay.kill)),
        Breakage("MD", "hangs", hang(parts.main), (1, 30)),
        Breakage("MD", "is killed", at_once(parts.main.kill)),
        Breakage("the main router", "is killed", at_once(router.kill)),
    ]
    if line.countable():
        breakages.append(Breakage("the line", "is cut", cut_the_line, (1, 15)))
    planned = faults(SEED, REQUESTS, breakages)
    print(f"seed {SEED}", *planned, sep="\n  ")
    began = time.monotonic()
    with running.endpoint(sites, "tiny") as url:
        report = run(url, "tiny", plan(SEED, REQUESTS), planned, known.__getitem__, clients=CLIENTS, said=print)
    print(f"seed {SEED}, {time.monotonic() - began:.0f} s: {report}")
    assert not report.wrong, report
    assert not report.hung, report
    assert not report.whole, report
    assert sum(report.ends.values()) == REQUESTS
    assert report.ends["complete"] > REQUESTS / 2, report
    assert report.resumed > 0, report
    running.wait_ready(sites.a, "tiny", print)
    parts.wait_free(90)
