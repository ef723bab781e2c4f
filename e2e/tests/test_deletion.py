"""Deletion of a deployment whose engines run: nothing of it stays in either cluster, labelled or not."""

import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.environment import Sites

pytestmark = pytest.mark.e2e

KINDS = "deployments,replicasets,services,configmaps,serviceaccounts,roles,rolebindings,pods,endpointslices,secrets"


def test_deletion_of_running_engines_leaves_nothing(sites: Sites, tiny: OpenAI) -> None:
    uid = sites.a.get(running.KIND, "tiny", "llm")["metadata"]["uid"]
    for cluster, component in ((sites.a, "prefill"), (sites.a, "relay-decode"), (sites.b, "main-decode")):
        assert running.pods(cluster, "tiny", component)
    sites.a.delete(running.KIND, "tiny", "llm")
    for cluster in sites.both:
        running.wait_gone(cluster, uid)
        left = [f"{item['kind']}/{item['metadata']['name']}" for item in cluster.list(KINDS, "-n", "llm")]
        assert [name for name in left if "/tiny" in name] == []
