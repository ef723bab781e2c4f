"""The operator follows what is asked for, survives its own death, and leaves nothing behind."""

import random
import time
from functools import partial
from typing import Any

import pytest
from openai import OpenAI

from pdd_e2e import deployments, running
from pdd_e2e.client import complete
from pdd_e2e.environment import Images, Sites
from pdd_e2e.install import SYSTEM
from pdd_e2e.kube import Cluster, condition, kill_container, wait_for
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e


def set_replicas(sites: Sites, **roles: int) -> None:
    """Of the parts that start quickly: an engine takes minutes on two cores."""
    patch = "{" + ",".join(f'"{role}":{{"replicas":{count}}}' for role, count in roles.items()) + "}"
    sites.a.kubectl("-n", "llm", "patch", running.KIND, "tiny", "--type=merge", "-p", f'{{"spec":{patch}}}')


def restart_count(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def running_operator(sites: Sites, restarts: int = 0) -> dict[str, Any]:
    """Its pod, once its container runs and has been started again `restarts` times at least."""

    def look() -> dict[str, Any] | None:
        found = sites.a.list("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=pdd-operator")
        running = [p for p in found if condition(p, "Ready")["status"] == "True" and restart_count(p) >= restarts]
        return running[0] if len(found) == len(running) == 1 else None

    return wait_for(f"the operator's pod, started again {restarts} times", look, seconds=180)


def ready_pods(sites: Sites, component: str) -> int:
    cluster = sites.b if component == "main-router" else sites.a
    return sum(
        condition(pod, "Ready")["status"] == "True" and "deletionTimestamp" not in pod["metadata"]
        for pod in running.pods(cluster, "tiny", component)
    )


def wait_for_pods(sites: Sites, component: str, count: int) -> None:
    wait_for(
        f"{count} {component} pods",
        lambda: ready_pods(sites, component) == count,
        seconds=120,
        otherwise=lambda: running.state(sites.a.get(running.KIND, "tiny", "llm")),
    )


def test_a_changed_replica_count_is_followed(sites: Sites, tiny: OpenAI) -> None:
    set_replicas(sites, router=2)
    wait_for_pods(sites, "front-router", 2)
    wait_for_pods(sites, "main-router", 2)
    set_replicas(sites, router=1)
    wait_for_pods(sites, "front-router", 1)
    wait_for_pods(sites, "main-router", 1)
    status = running.wait_ready(sites.a, "tiny")["status"]
    assert {role["name"]: role["ready"] for role in status["roles"]}["front-router"] == 1


def test_an_engine_replica_count_is_followed(sites: Sites, tiny: OpenAI) -> None:
    """A second prefill engine gets a chip of its pool; it need not be done with loading for that."""

    def scheduled() -> int:
        found = running.pods(sites.a, "tiny", "prefill")
        return sum("nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"] for pod in found)

    set_replicas(sites, prefill=2)
    wait_for("two prefill pods with a node", lambda: scheduled() == 2, seconds=60)
    set_replicas(sites, prefill=1)
    wait_for("one prefill pod", lambda: scheduled() == 1, seconds=60)
    running.wait_ready(sites.a, "tiny")


def test_at_rest_nothing_is_written(sites: Sites, tiny: OpenAI) -> None:
    """But a WANLink whose measured round trip has moved: then its figures differ, and it is written once in 30 s."""

    def objects() -> dict[str, Any]:
        found = [sites.a.get(running.KIND, "tiny", "llm")]
        found += sites.a.list("memberclusters,wanlinks")
        for cluster in sites.both:
            found += cluster.list("deployments,services,configmaps,roles", "-n", "llm")
        return {f"{f['kind']}/{f['metadata']['uid']}": f for f in found}

    running.wait_ready(sites.a, "tiny")
    time.sleep(35)  # past the last rounded figure of what went before
    before = objects()
    time.sleep(30)
    for name, now in objects().items():
        if now["metadata"]["resourceVersion"] != before[name]["metadata"]["resourceVersion"]:
            assert now["kind"] == "WANLink", f"{name} was written at rest"
            assert now["status"]["paths"] != before[name]["status"]["paths"], "a WANLink was written without news"


@pytest.mark.parametrize("round_", range(3))
def test_the_operator_killed_at_a_random_moment_converges(sites: Sites, tiny: OpenAI, round_: int) -> None:
    pod = running_operator(sites)
    restarts = restart_count(pod)
    wanted = 2 if ready_pods(sites, "front-router") == 1 else 1
    set_replicas(sites, router=wanted)
    time.sleep(random.uniform(0, 1.5))
    try:
        kill_container(pod)
    except LookupError as error:
        pytest.skip(f"the node does not share this machine's kernel: {error}")
    wait_for_pods(sites, "front-router", wanted)
    wait_for_pods(sites, "main-router", wanted)
    running_operator(sites, restarts + 1)
    running.wait_ready(sites.a, "tiny")


def test_a_route_around_the_operator_stays_open(sites: Sites, tiny: OpenAI) -> None:
    """The data plane goes on while the operator is away."""
    sites.a.kubectl("-n", SYSTEM, "scale", "deployment", "pdd-operator", "--replicas=0")
    try:
        answer = complete(tiny, "tiny", prompt(300, seed=31), max_tokens=8)
        assert len(answer.token_ids) == 8
    finally:
        sites.a.kubectl("-n", SYSTEM, "scale", "deployment", "pdd-operator", "--replicas=1")


def some_objects(cluster: Cluster, uid: str) -> list[str] | None:
    return running.objects(cluster, uid) or None


def test_what_never_fits_says_so_and_is_deleted(sites: Sites, images: Images, tiny: OpenAI) -> None:
    """A second deployment, whose engines ask for more chips than there are."""
    manifest = deployments.tiny(images)
    manifest["metadata"]["name"] = "shortlived"
    manifest["spec"]["model"]["name"] = "shortlived"
    for role in (manifest["spec"]["prefill"], manifest["spec"]["relayDecode"]):
        role["parallelism"] = {"tensor": 64}
    manifest["spec"]["mainDecode"]["placements"][0]["parallelism"] = {"tensor": 64}
    sites.a.apply(manifest)
    made = sites.a.get(running.KIND, "shortlived", "llm")
    uid = made["metadata"]["uid"]
    for cluster in sites.both:
        wait_for("objects in both members", partial(some_objects, cluster, uid), seconds=60)

    def unschedulable() -> bool:
        found = condition(sites.a.get(running.KIND, "shortlived", "llm"), "Scheduled")
        return found["status"] == "False" and "example.com/chip-" in found["message"]

    wait_for("Scheduled=False that names the missing chip", unschedulable, seconds=120)
    sites.a.delete(running.KIND, "shortlived", "llm")
    for cluster in sites.both:
        running.wait_gone(cluster, uid)
