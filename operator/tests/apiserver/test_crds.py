"""What the API server itself refuses and fills in."""

import copy
from typing import Any

import pytest

from pdd_operator.api import MemberCluster, PDDDeployment, WANLink
from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.kinds import MEMBER_CLUSTER, PDD_DEPLOYMENT, WAN_LINK, Kind

from .world import World

pytestmark = pytest.mark.apiserver

POOL = {"nodePool": "memory", "cluster": "site-b"}
SOURCE = {"image": {"path": "/m"}}

REFUSED: list[tuple[Kind, dict[str, Any], str]] = [
    (MEMBER_CLUSTER, {"inCluster": {}}, "set exactly one of inCluster and kubeconfigSecretRef"),
    (MEMBER_CLUSTER, {"kubeconfigSecretRef": None}, "set exactly one of inCluster and kubeconfigSecretRef"),
    (MEMBER_CLUSTER, {"nodePools": []}, "should have at least 1 items"),
    (WAN_LINK, {"mode": "WireGuard"}, "mode WireGuard and mode Delegated are not built yet"),
    (WAN_LINK, {"mode": "Delegated"}, "mode WireGuard and mode Delegated are not built yet"),
    (WAN_LINK, {"encryption": "Required"}, "encryption Preferred and Required are not built yet"),
    (WAN_LINK, {"encryption": "Preferred"}, "encryption Preferred and Required are not built yet"),
    (WAN_LINK, {"budget": {"lossPercent": "half"}}, "spec.budget.lossPercent"),
    (
        WAN_LINK,
        {"ends": [{"cluster": "a", "reach": "PodNetwork"}, {"cluster": "b"}]},
        "reach PodNetwork and LoadBalancer",
    ),
    (WAN_LINK, {"bandwidth": "10 Gb/s"}, "spec.bandwidth"),
    (WAN_LINK, {"ends": [{"cluster": "a"}]}, "should have at least 2 items"),
    (WAN_LINK, {"ends": [{"cluster": "a"}, {"cluster": "a"}]}, "Duplicate value"),
    (PDD_DEPLOYMENT, {"model": {"name": "m", "source": {}}}, "set exactly one of huggingFace"),
    (
        PDD_DEPLOYMENT,
        {"model": {"name": "m", "source": {**SOURCE, "huggingFace": {"repo": "a/b"}}}},
        "set exactly one of huggingFace",
    ),
    (
        PDD_DEPLOYMENT,
        {"relayDecode": {"nodePool": "compute", "autoscaling": {"maxReplicas": 3}}},
        "relayDecode.autoscaling is not built yet; set replicas",
    ),
    (
        PDD_DEPLOYMENT,
        {"mainDecode": {"placements": [POOL, {**POOL, "cluster": "site-c"}]}},
        "more than one main-decode placement is not built yet",
    ),
    (
        PDD_DEPLOYMENT,
        {"mainDecode": {"placements": [{**POOL, "cluster": "site-a"}]}},
        "prefill and main decode in one cluster are not built yet",
    ),
    (
        PDD_DEPLOYMENT,
        {"relayDecode": {"nodePool": "compute", "parallelism": {"pipeline": 2}}},
        "parallelism.pipeline above 1 is not built yet",
    ),
    (
        PDD_DEPLOYMENT,
        {"relayDecode": {"nodePool": "compute", "parallelism": {"nodes": 2}}},
        "parallelism.nodes above 1 is not built yet",
    ),
    (PDD_DEPLOYMENT, {"routing": {"handoff": "CatchUp"}}, "routing.handoff CatchUp is not built yet"),
    (
        PDD_DEPLOYMENT,
        {"routing": {"maxRequests": 0}},
        "spec.routing.maxRequests in body should be greater than or equal to 1",
    ),
    (PDD_DEPLOYMENT, {"endpoint": {"apiKeys": {}}}, "spec.endpoint.apiKeys.secretRef: Required value"),
    (PDD_DEPLOYMENT, {"endpoint": {"apiKeys": {"secretRef": {"name": ""}}}}, "spec.endpoint.apiKeys.secretRef.name"),
    (PDD_DEPLOYMENT, {"routing": {"toleratedWait": "fast"}}, "spec.routing.toleratedWait"),
    (PDD_DEPLOYMENT, {"relayDecode": {"nodePool": "compute", "replicas": 0}}, "greater than or equal to 1"),
    (
        PDD_DEPLOYMENT,
        {"engine": {"env": [{"name": "PDD_ROLE", "value": "x"}]}},
        "PDD_* and POD_IP are set by the operator",
    ),
    (
        PDD_DEPLOYMENT,
        {"engine": {"env": [{"name": "X", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}},
        "set value or valueFrom, not both",
    ),
    (
        PDD_DEPLOYMENT,
        {"engine": {"env": [{"name": "X", "valueFrom": {}}]}},
        "set exactly one of secretKeyRef and configMapKeyRef",
    ),
]


def _changed(world: World, kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    found = world.examples(kind)[-1]
    found["metadata"]["name"] = "changed"
    found["spec"] |= spec
    return found


@pytest.mark.parametrize(("kind", "spec", "message"), REFUSED)
async def test_refused(world: World, kind: Kind, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await world.hub.create(kind, _changed(world, kind, spec))
    assert refusal.value.status == 422
    assert message in refusal.value.message


@pytest.mark.parametrize("name", ["9lives", "dotted.name", "x" * 51])
async def test_names_that_cannot_prefix_a_service(world: World, name: str) -> None:
    wanted = world.deployment
    wanted["metadata"]["name"] = name
    with pytest.raises(ApiError, match="the name must be a DNS label of at most 50 characters"):
        await world.hub.create(PDD_DEPLOYMENT, wanted)


@pytest.mark.parametrize(
    ("kind", "name", "change", "message"),
    [
        (
            PDD_DEPLOYMENT,
            "assistant",
            {"prefill": {"cluster": "site-c"}},
            "prefill.cluster is immutable; create another PDDDeployment",
        ),
        (
            PDD_DEPLOYMENT,
            "assistant",
            {"mainDecode": {"placements": [{**POOL, "cluster": "site-c"}]}},
            "the cluster of a placement is immutable; create another PDDDeployment",
        ),
        (
            WAN_LINK,
            "a-b",
            {"ends": [{"cluster": "site-a"}, {"cluster": "site-c"}]},
            "ends are immutable; create another WANLink",
        ),
    ],
)
async def test_immutable(world: World, kind: Kind, name: str, change: dict[str, Any], message: str) -> None:
    await world.create()
    namespace = world.namespace if kind.namespaced else ""
    with pytest.raises(ApiError, match=message):
        await world.hub.merge(kind, name, namespace, {"spec": copy.deepcopy(change)})


@pytest.mark.parametrize(
    ("kind", "model"),
    [(MEMBER_CLUSTER, MemberCluster), (WAN_LINK, WANLink), (PDD_DEPLOYMENT, PDDDeployment)],
)
async def test_the_servers_defaults_are_the_models(world: World, kind: Kind, model: Any) -> None:
    sent = _changed(world, kind, {})
    kept = await world.hub.create(kind, sent)

    assert model.model_validate(kept).spec == model.model_validate(sent).spec
    defaulted = model.model_validate(sent).spec.model_dump(by_alias=True, exclude_none=True)
    assert kept["spec"] == defaulted
