"""The link agents of one end of a WANLink: what measures the line, always, and without the hub."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.quantity import bits_per_second
from pdd_operator.api.wan_link import WANLink
from pdd_operator.desired.labels import (
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    LINK_UID_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    Manifest,
    Owner,
)
from pdd_operator.desired.nodes import off_pools
from pdd_operator.desired.pods import CONTAINER_SECURITY, LIFECYCLE, POD_SECURITY, container_port, http_probe

AGENT_PORT: Final = 9090
"""TCP: measurements, metrics and health."""
PROBE_PORT: Final = 7401
LINK_AGENT: Final = "link-agent"
PROBE_KEY: Final = "probe.key"
_CONFIG_KEY: Final = "link.json"
_CONFIG_MOUNT: Final = "/etc/pdd/link"
_KEYS_MOUNT: Final = "/etc/pdd/keys"
_REPLICAS: Final = 2


@dataclass(frozen=True)
class OtherEnd:
    """The other end as this one's agents reach it: `host:port` of its agents and of a router, where there is one."""

    site: str
    agents: Sequence[str]
    router: str | None


def link_owner(link: WANLink, namespace: str) -> Owner:
    """The WANLink as the owner of objects in a namespace of a member."""
    remedy = f"install chart pdd-member of this version there, in namespace {namespace}"
    return Owner(link.kind, link.metadata.name, namespace, link.metadata.uid, LINK_UID_LABEL, remedy)


def agent_name(link: WANLink) -> str:
    """Of all objects of an end."""
    return f"pdd-link-{link.metadata.name}"


def agent_service(owner: Owner, link: WANLink) -> Manifest:
    """Where the other end's probes come in."""
    port = {"name": "probe", "port": PROBE_PORT, "targetPort": "probe", "protocol": "UDP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(owner, link),
        "spec": {"type": "NodePort", "selector": _selector(link), "ports": [port]},
    }


def agent_keys(owner: Owner, link: WANLink, probe_key: str) -> Manifest:
    """The Secret with the key that is this link's; `probe_key` in base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(owner, link),
        "type": "Opaque",
        "data": {PROBE_KEY: probe_key},
    }


def link_agent(
    owner: Owner, link: WANLink, *, site: str, other: OtherEnd, pools: Sequence[NodePool], image: str
) -> list[Manifest]:
    """ConfigMap and Deployment of the agents of an end."""
    config: dict[str, Any] = {
        "link": link.metadata.name,
        "site": site,
        "bandwidthBitsPerSecond": bits_per_second(link.spec.bandwidth),
        "peers": [
            {"site": other.site, **_host_and("probePort", agent), "router": _router(other.router)}
            for agent in other.agents
        ],
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(owner, link),
        "data": {_CONFIG_KEY: json.dumps(config, indent=2) + "\n"},
    }
    return [config_map, _deployment(owner, link, pools, image)]


def _deployment(owner: Owner, link: WANLink, pools: Sequence[NodePool], image: str) -> Manifest:
    name = agent_name(link)
    container: Manifest = {
        "name": "agent",
        "image": image,
        "args": ["--config", f"{_CONFIG_MOUNT}/{_CONFIG_KEY}", "--keys", _KEYS_MOUNT],
        "ports": [
            container_port("http", AGENT_PORT),
            {"name": "probe", "containerPort": PROBE_PORT, "protocol": "UDP"},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "192Mi"}},
        "readinessProbe": http_probe("/readyz", periodSeconds=5, failureThreshold=3),
        "livenessProbe": http_probe("/healthz", periodSeconds=10, failureThreshold=3),
        "lifecycle": LIFECYCLE,
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_MOUNT, "readOnly": True},
            {"name": "keys", "mountPath": _KEYS_MOUNT, "readOnly": True},
        ],
    }
    pod: Manifest = {
        **off_pools(pools),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _selector(link)},
            }
        ],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 15,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            {"name": "keys", "secret": {"secretName": name, "defaultMode": 0o440}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(owner, link),
        "spec": {
            "replicas": _REPLICAS,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 300,
            "selector": {"matchLabels": _selector(link)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": _labels(owner, link)}, "spec": pod},
        },
    }


def _selector(link: WANLink) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "pdd",
        INSTANCE_LABEL: link.metadata.name,
        COMPONENT_LABEL: LINK_AGENT,
    }


def _labels(owner: Owner, link: WANLink) -> dict[str, str]:
    return {**_selector(link), MANAGED_BY_LABEL: MANAGER, owner.uid_label: owner.uid}


def _metadata(owner: Owner, link: WANLink) -> Manifest:
    return {"name": agent_name(link), "namespace": owner.namespace, "labels": _labels(owner, link)}


def _router(address: str | None) -> dict[str, Any] | None:
    return None if address is None else _host_and("port", address)


def _host_and(port_field: str, address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"host": host.strip("[]"), port_field: int(port)}
