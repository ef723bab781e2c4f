"""A member's nodes as far as the operator cares."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdd_operator.api.member_cluster import NodePool


@dataclass(frozen=True)
class Node:
    """One node."""

    name: str
    ready: bool
    schedulable: bool
    internal_ip: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]

    def belongs_to(self, pool: NodePool) -> bool:
        """Whether the pool's selector matches."""
        return all(self.labels.get(key) == value for key, value in pool.selector.match_labels.items())


def node(found: Mapping[str, Any]) -> Node:
    """The node as the API server gave it."""
    status = found.get("status", {})
    conditions = {item["type"]: item["status"] for item in status.get("conditions") or []}
    addresses = [item["address"] for item in status.get("addresses") or [] if item["type"] == "InternalIP"]
    return Node(
        name=found["metadata"]["name"],
        ready=conditions.get("Ready") == "True",
        schedulable=not found.get("spec", {}).get("unschedulable", False),
        internal_ip=addresses[0] if addresses else "",
        labels=found["metadata"].get("labels") or {},
        allocatable=status.get("allocatable") or {},
    )


def addresses(nodes: Iterable[Node], service: Mapping[str, Any], *, at_most: int = 3) -> Sequence[str]:
    """Where the other site reaches a NodePort Service: ready nodes, sorted, so that they change seldom."""
    ports = [port["nodePort"] for port in service["spec"]["ports"] if port.get("nodePort")]
    hosts = sorted(each.internal_ip for each in nodes if each.ready and each.internal_ip)
    return [_host_port(host, port) for port in ports for host in hosts][:at_most]


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
