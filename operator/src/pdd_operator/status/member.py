"""The status of a MemberCluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdd_operator.api.base import ConditionStatus
from pdd_operator.api.member_cluster import (
    Chips,
    MemberCluster,
    MemberClusterStatus,
    NodePool,
    NodePoolStatus,
)
from pdd_operator.desired.labels import Manifest
from pdd_operator.plan.nodes import Node
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding, conditions
from pdd_operator.status.pods import living


@dataclass(frozen=True)
class MemberObservation:
    """What a reachable member answered."""

    version: str
    nodes: Sequence[Node]
    pods: Sequence[Manifest]
    """Pods of PDDDeployments."""


def member_status(cluster: MemberCluster, seen: MemberObservation | Problem, *, now: str) -> MemberClusterStatus:
    """The next status; a lost member keeps what was last known of it."""
    previous, generation = cluster.status, cluster.metadata.generation
    if isinstance(seen, Problem):
        status: ConditionStatus = "False" if seen.needs_help else "Unknown"
        return previous.model_copy(
            update={
                "observed_generation": generation,
                "lost_since": previous.lost_since or now,
                "conditions": conditions(
                    [Finding("Ready", status, seen.reason, seen.message)],
                    previous=previous.conditions,
                    generation=generation,
                    now=now,
                ),
            }
        )
    pools = [_pool(pool, seen) for pool in cluster.spec.node_pools]
    return MemberClusterStatus(
        observed_generation=generation,
        conditions=conditions(
            [Finding("Ready", "True", "Answering", "the API server answers")],
            previous=previous.conditions,
            generation=generation,
            now=now,
        ),
        kubernetes_version=seen.version,
        node_pools=pools,
        chips=", ".join(f"{pool.name} {pool.chips.free}/{pool.chips.allocatable}" for pool in pools),
    )


def _pool(pool: NodePool, seen: MemberObservation) -> NodePoolStatus:
    nodes = [node for node in seen.nodes if node.belongs_to(pool)]
    usable = {node.name: node for node in nodes if node.ready and node.schedulable}
    allocatable = sum(int(node.allocatable.get(pool.resource_name, "0")) for node in usable.values())
    asked = sum(_chips(pod, pool.resource_name) for pod in living(seen.pods) if pod["spec"].get("nodeName") in usable)
    return NodePoolStatus(
        name=pool.name,
        nodes=len(nodes),
        ready=len(usable),
        chips=Chips(allocatable=allocatable, free=max(0, allocatable - asked)),
    )


def _chips(pod: Manifest, resource: str) -> int:
    containers: Iterable[Manifest] = pod["spec"].get("containers", [])
    return sum(
        int(((container.get("resources") or {}).get("requests") or {}).get(resource, "0")) for container in containers
    )
