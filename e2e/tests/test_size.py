"""The promises about memory, read from the running processes."""

import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.environment import Sites
from pdd_e2e.install import SYSTEM
from pdd_e2e.kube import Cluster

pytestmark = pytest.mark.e2e


def resident_megabytes(cluster: Cluster, namespace: str, pod: str) -> float:
    status = cluster.kubectl("exec", "-n", namespace, pod, "--", "cat", "/proc/1/status")
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(kilobytes) / 1024


def test_the_operator_is_small(sites: Sites, tiny: OpenAI) -> None:
    [pod] = sites.a.list("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=pdd-operator")
    assert resident_megabytes(sites.a, SYSTEM, pod["metadata"]["name"]) < 120


@pytest.mark.parametrize("component", ["front-router", "main-router"])
def test_the_routers_are_small(sites: Sites, tiny: OpenAI, component: str) -> None:
    cluster = sites.a if component == "front-router" else sites.b
    for pod in running.pods(cluster, "tiny", component):
        assert resident_megabytes(cluster, "llm", pod["metadata"]["name"]) < 150
