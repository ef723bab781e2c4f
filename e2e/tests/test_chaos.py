"""Three hundred requests while everything breaks: no wrong token, no request that hangs, nothing held afterwards."""

import os
import subprocess
import time

import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.chaos import MOST_TOKENS, PROMPTS, Fault, hang, plan, run
from pdd_e2e.client import complete
from pdd_e2e.engines import Role, engines
from pdd_e2e.environment import Sites
from pdd_e2e.line import countable
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e

REQUESTS = 300
SEED = int(os.environ.get("PDD_E2E_CHAOS_SEED", "1"))


def cut_the_line(seconds: float) -> None:
    line = os.environ["PDD_E2E_LINE"].split()
    subprocess.run([*line, "down"], check=True, capture_output=True)
    try:
        time.sleep(seconds)
    finally:
        subprocess.run([*line, "up"], check=True, capture_output=True)


def test_nothing_that_breaks_gives_a_wrong_token(sites: Sites, tiny: OpenAI, alone: OpenAI) -> None:
    parts = engines(sites, "tiny")
    running.wait_ready(sites.a, "tiny", print)
    known = {
        (length, seed): complete(
            alone, "tiny", prompt(length, seed), max_tokens=MOST_TOKENS, trace=False, ignore_eos=True
        ).token_ids
        for length, seed in PROMPTS
    }
    faults = [
        Fault(20, "RLD hangs for 4 s", hang(parts.relay, 4)),
        Fault(40, "MD hangs for 8 s", hang(parts.main, 8)),
        Fault(70, "P hangs for 6 s", hang(parts.prefill, 6)),
        Fault(100, "the main router is killed", Role(sites.b, "tiny", "main-router").kill),
        Fault(130, "RLD is killed", parts.relay.kill),
        Fault(160, "MD hangs for 26 s, and is put aside", hang(parts.main, 26)),
        Fault(200, "MD is killed", parts.main.kill),
        Fault(260, "P is killed", parts.prefill.kill),
    ]
    if countable():
        faults.append(Fault(85, "the line is cut for 4 s", lambda: cut_the_line(4)))
    began = time.monotonic()
    with running.endpoint(sites, "tiny") as url:
        report = run(url, "tiny", plan(SEED, REQUESTS), faults, known.__getitem__, clients=10, said=print)
    print(f"seed {SEED}, {time.monotonic() - began:.0f} s: {report}")
    assert not report.wrong, report
    assert not report.hung, report
    assert sum(report.ends.values()) == REQUESTS
    assert report.ends["complete"] > REQUESTS / 2, report
    assert report.resumed > 0, report
    running.wait_ready(sites.a, "tiny", print)
    parts.wait_free(90)
