"""The line as its agents measure it: every way in which it goes bad has a name, and is told from the others."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from pdd_e2e import line, running
from pdd_e2e.asking import ask
from pdd_e2e.client import complete
from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.environment import Sites
from pdd_e2e.install import SYSTEM
from pdd_e2e.kube import Cluster, condition, wait_for
from pdd_e2e.prompts import prompt

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not line.countable(), reason="makes the line worse (PDD_E2E_LINE)"),
]

LINK = "wanlink", "a-b"
# The agents' window is a minute; the operator reads them every 5 s and writes numbers every 30.
SEEN_SECONDS = 120.0
# A line that is to be found well is looked at for some time.
HELD_SECONDS = 20.0
KEPT = ("Ready", "Established", "Reachable", "PathMTUValid", "LatencyWithinBudget", "LossWithinBudget")


def state(sites: Sites) -> dict[str, tuple[str, str]]:
    found = sites.a.get(*LINK)
    return {kind: (each["status"], each["reason"]) for kind in KEPT for each in [condition(found, kind)]}


def wait_state(sites: Sites, **wanted: tuple[str, str]) -> None:
    wait_for(
        f"WANLink a-b to be {wanted}",
        lambda: state(sites).items() >= wanted.items(),
        seconds=SEEN_SECONDS,
        otherwise=lambda: str(sites.a.get(*LINK)["status"]),
    )


WELL = {
    "Ready": ("True", "Answering"),
    "Established": ("True", "EchoesReturn"),
    "Reachable": ("True", "Answering"),
    "PathMTUValid": ("True", "FullSizePasses"),
}
# These take until the agents' window has forgotten what was.
IN_BUDGET = {"LatencyWithinBudget": ("True", "WithinBudget"), "LossWithinBudget": ("True", "WithinBudget")}


@pytest.fixture
def well(sites: Sites, tiny: OpenAI) -> Iterator[Sites]:
    """A line that is well before and afterwards, with engines on both ends that were not restarted by what it did."""
    sites.a.kubectl("patch", *LINK, "--type=merge", "-p", '{"spec":{"budget":{"lossPercent":"0.1"}}}')
    wait_state(sites, **WELL)
    before = lives(sites)
    yield sites
    wait_state(sites, **WELL)
    assert lives(sites) == before
    with running.endpoint(sites, "tiny") as url:
        wait_for("an answer", lambda: ask(url, "tiny", [7] * 40, max_tokens=4).complete, seconds=60)


def lives(sites: Sites) -> dict[str, int]:
    """Restarts of every pod."""
    return {
        pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
        for cluster in (sites.a, sites.b)
        for namespace in (NAMESPACE, SYSTEM)
        for pod in cluster.list("pods", "-n", namespace)
        if pod["metadata"]["name"].startswith(("tiny", "pdd-link")) and "deletionTimestamp" not in pod["metadata"]
    }


def agents(cluster: Cluster) -> list[str]:
    labels = "app.kubernetes.io/component=link-agent,app.kubernetes.io/instance=a-b"
    return [str(pod["metadata"]["name"]) for pod in cluster.list("pods", "-n", SYSTEM, "-l", labels)]


def test_agents_run_at_both_ends_and_measure(well: Sites) -> None:
    wait_state(well, **IN_BUDGET)
    found = well.a.get(*LINK)
    paths = {(path["from"], path["to"], path["trafficClass"]): path for path in found["status"]["paths"]}
    assert len(paths) == 4
    for path in paths.values():
        assert 15_000 < path["roundTripMicros"]["p50"] < 40_000  # the emulator's 20 ms, and what the machine adds
        assert path["mtuBytes"] >= 1280
    for cluster in (well.a, well.b):
        assert len(agents(cluster)) == 2
    assert condition(found, "Provisioned")["status"] == "True"


# What is done to the line, and what the WANLink then says.
BAD: dict[str, tuple[dict[str, str], dict[str, tuple[str, str]]]] = {
    "80 ms and 2 % loss": (
        {"delay": "40ms", "loss": "2%"},
        {
            "Ready": ("True", "Answering"),
            "LatencyWithinBudget": ("False", "OverBudget"),
            "LossWithinBudget": ("False", "OverBudget"),
        },
    ),
    "a black hole above 1,400 bytes": (
        {"mtu": "1400"},
        {"Ready": ("False", "BlackHole"), "Reachable": ("True", "Answering"), "PathMTUValid": ("False", "BlackHole")},
    ),
    "UDP blocked": (
        {"udp": "off"},
        {
            "Ready": ("True", "RouterAnswers"),
            "Reachable": ("True", "RouterAnswers"),
            "Established": ("False", "NoEcho"),
        },
    ),
    "half the rate": ({"rate": "50mbit"}, WELL),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_in_both_directions(well: Sites, alone: OpenAI, name: str) -> None:
    settings, wanted = BAD[name]
    ids = prompt(300, seed=3)
    right = complete(alone, "tiny", ids, max_tokens=40, trace=False, ignore_eos=True).token_ids
    with line.changed(**settings), running.endpoint(well, "tiny") as url, ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, url, "tiny", ids, max_tokens=40, ignore_eos=True) for _ in range(4)]
        wait_state(well, **wanted)
        if wanted is WELL:
            time.sleep(HELD_SECONDS)
            assert state(well).items() >= WELL.items()
        for each in asked:
            outcome = each.result()
            assert outcome.ids == right[: len(outcome.ids)]
            assert outcome.complete or outcome.error is not None, outcome
    if wanted.keys() & IN_BUDGET:
        wait_state(well, **IN_BUDGET)


def wait_dead(sites: Sites) -> dict[str, Any]:
    """The WANLink's condition Reachable, once it is False."""

    def look() -> dict[str, Any] | None:
        found = condition(sites.a.get(*LINK), "Reachable")
        return found if found["status"] == "False" else None

    return wait_for("WANLink a-b to be unreachable", look, seconds=60)


# The hub reaches site-b's API server over the same line here. What site-b's agents say is not known while it is dead,
# so what is dead for site-a can be both directions.
def test_the_way_to_the_other_site_dead(well: Sites) -> None:
    with line.changed("ab", loss="100%"):
        found = wait_dead(well)
        assert found["reason"] == "OneDirectionDead"
        assert "nothing crosses from site-a to site-b; the direction site-b to site-a works" in found["message"]
        wait_state(well, Ready=("False", "OneDirectionDead"))


def test_the_way_back_dead(well: Sites) -> None:
    with line.changed("ba", loss="100%"):
        found = wait_dead(well)
        assert found["reason"] in ("OneDirectionDead", "NoAnswer")
        assert "site-b to site-a" in found["message"] or "site-a hears nothing" in found["message"]


def test_all_dead(well: Sites) -> None:
    with line.cut():
        found = wait_dead(well)
        assert found["reason"] in ("BothDirectionsDead", "NoAnswer")
        wait_state(well, Ready=("False", found["reason"]), PathMTUValid=("Unknown", "NotReachable"))
        events: list[dict[str, Any]] = well.a.list("events", "-n", "default")
        reasons = [each["reason"] for each in events if each["involvedObject"].get("name") == "a-b"]
        assert found["reason"] in reasons


def test_agents_measure_while_the_operator_is_away(well: Sites) -> None:
    """What they say is read by hand here."""
    well.a.kubectl("-n", SYSTEM, "scale", "deployment", "pdd-operator", "--replicas=0")
    try:
        labels = "app.kubernetes.io/name=pdd-operator"
        wait_for("no operator", lambda: not well.a.list("pods", "-n", SYSTEM, "-l", labels), seconds=60)
        before = echoed(well.a)
        wait_for("more echoes", lambda: echoed(well.a) > before, seconds=20)
    finally:
        well.a.kubectl("-n", SYSTEM, "scale", "deployment", "pdd-operator", "--replicas=1")


def echoed(cluster: Cluster) -> float:
    """Probes of one agent that have come back."""
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{agents(cluster)[0]}:9090/proxy/metrics"
    return sum(
        sample.value
        for family in text_string_to_metric_families(cluster.kubectl("get", "--raw", path))
        for sample in family.samples
        if sample.name == "pdd_link_probes_echoed_total"
    )
