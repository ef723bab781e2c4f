"""Where pods may land: on their pool, or away from every pool."""

from collections.abc import Sequence

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pod import to_manifest
from pdd_operator.desired.labels import Manifest


def on_pool(pool: NodePool) -> Manifest:
    """Pod fields that keep a pod on the pool's nodes."""
    fields: Manifest = {"nodeSelector": dict(pool.selector.match_labels)}
    if pool.tolerations:
        fields["tolerations"] = [to_manifest(toleration) for toleration in pool.tolerations]
    return fields


def off_pools(pools: Sequence[NodePool]) -> Manifest:
    """Pod fields that keep a pod off the chips' nodes where there are others.

    A site may consist of chip nodes only, so this is a preference, and the pools' taints are tolerated.
    """
    pairs = sorted({pair for pool in pools for pair in pool.selector.match_labels.items()})
    fields: Manifest = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]},
                    }
                    for key, value in pairs
                ]
            }
        }
    }
    tolerations: list[Manifest] = []
    for pool in pools:
        for toleration in map(to_manifest, pool.tolerations):
            if toleration not in tolerations:
                tolerations.append(toleration)
    if tolerations:
        fields["tolerations"] = tolerations
    return fields
