"""Pods are where the chips are, and nowhere else."""

import pytest
from openai import OpenAI

from pdd_e2e.environment import Sites
from pdd_e2e.running import pods

pytestmark = pytest.mark.e2e


def node_labels(sites: Sites, site: str, node: str) -> dict[str, str]:
    cluster = sites.a if site == "site-a" else sites.b
    return dict(cluster.get("node", node)["metadata"]["labels"])


@pytest.mark.parametrize(
    ("site", "component", "pool", "chip"),
    [
        ("site-a", "prefill", "compute", "example.com/chip-a"),
        ("site-a", "relay-decode", "compute", "example.com/chip-a"),
        ("site-b", "main-decode", "memory", "example.com/chip-b"),
    ],
)
def test_engines_run_on_their_pool_with_a_chip(
    sites: Sites, tiny: OpenAI, site: str, component: str, pool: str, chip: str
) -> None:
    cluster = sites.a if site == "site-a" else sites.b
    found = pods(cluster, "tiny", component)
    assert found
    for pod in found:
        assert node_labels(sites, site, pod["spec"]["nodeName"])["pdd.dev/pool"] == pool
        assert pod["spec"]["containers"][0]["resources"]["limits"][chip] == "1"


@pytest.mark.parametrize("component", ["renderer", "front-router"])
def test_the_rest_of_site_a_leaves_the_chips_alone(sites: Sites, tiny: OpenAI, component: str) -> None:
    found = pods(sites.a, "tiny", component)
    assert found
    for pod in found:
        assert node_labels(sites, "site-a", pod["spec"]["nodeName"])["pdd.dev/pool"] == "general"
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        assert not [name for name in limits if "chip" in name]


def test_the_main_router_is_at_mds_site(sites: Sites, tiny: OpenAI) -> None:
    [pod] = pods(sites.b, "tiny", "main-router")
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    assert not [name for name in limits if "chip" in name]


def test_no_role_is_where_it_does_not_belong(sites: Sites, tiny: OpenAI) -> None:
    for cluster, foreign in ((sites.a, ("main-decode", "main-router")), (sites.b, ("prefill", "relay-decode"))):
        for component in foreign:
            assert not pods(cluster, "tiny", component)


def test_nothing_in_a_member_names_a_pod_of_the_other(sites: Sites, tiny: OpenAI) -> None:
    for cluster, other in ((sites.a, sites.b), (sites.b, sites.a)):
        manifests = cluster.kubectl("get", "deployments,services,configmaps", "-n", "llm", "-o", "yaml")
        for pod in other.list("pods", "-n", "llm"):
            assert pod["status"].get("podIP", "none") not in manifests
