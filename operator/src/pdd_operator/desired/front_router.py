"""The front router: the OpenAI endpoint at the prefill site."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.quantity import bits_per_second, micros
from pdd_operator.api.wan_link import WANLink
from pdd_operator.desired.labels import (
    FRONT_ROUTER,
    PREFILL,
    RELAY_DECODE,
    RENDERER,
    Manifest,
    object_name,
)
from pdd_operator.desired.pods import service_of, service_port
from pdd_operator.desired.router import CONFIG_MOUNT, ROUTER_PORT, router_config, router_deployment

API_KEYS_VOLUME = "api-keys"
# Inside the mount of the configuration: the kubelet makes the directory for it there.
_API_KEYS_MOUNT = f"{CONFIG_MOUNT}/api-keys"


@dataclass(frozen=True)
class RemoteSite:
    """A main-decode site as the front router reaches it."""

    name: str
    link: WANLink
    addresses: Sequence[str]


def front_services(deployment: PDDDeployment) -> list[Manifest]:
    """The endpoint, and a second Service on which telemetry and metrics can be read while it is not ready.

    The endpoint is not ready when no other site answers; that is when both matter most.
    """
    ports = [service_port("http", ROUTER_PORT)]
    return [
        service_of(deployment, FRONT_ROUTER, name=deployment.metadata.name, type="ClusterIP", ports=ports),
        service_of(
            deployment,
            FRONT_ROUTER,
            name=object_name(deployment, FRONT_ROUTER),
            type="ClusterIP",
            publishNotReadyAddresses=True,
            ports=ports,
        ),
    ]


def endpoint(deployment: PDDDeployment) -> str:
    """The OpenAI-compatible API, as reached inside the prefill cluster."""
    about = deployment.metadata
    return f"http://{about.name}.{about.namespace}.svc:{ROUTER_PORT}/v1"


def front_router(
    deployment: PDDDeployment,
    *,
    pools: Sequence[NodePool],
    image: str,
    sites: Sequence[RemoteSite],
) -> list[Manifest]:
    """ConfigMap and Deployment of the front router."""
    routing = deployment.spec.routing
    content: dict[str, Any] = {
        "mode": "front",
        "deployment": deployment.metadata.name,
        "namespace": deployment.metadata.namespace,
        "site": deployment.spec.prefill.cluster,
        "model": deployment.spec.model.name,
        "services": {
            "prefill": object_name(deployment, PREFILL),
            "relayDecode": object_name(deployment, RELAY_DECODE),
            "renderer": object_name(deployment, RENDERER),
        },
        "sites": [
            {
                "name": site.name,
                "link": site.link.metadata.name,
                "addresses": list(site.addresses),
                "bandwidthBitsPerSecond": bits_per_second(site.link.spec.bandwidth),
            }
            for site in sites
        ],
        "routing": {
            "toleratedWaitMillis": micros(routing.tolerated_wait) // 1000,
            "requestOverrides": routing.request_overrides,
            "maxRequests": routing.max_requests,
        },
    }
    volumes, mounts = [], []
    api_keys = deployment.spec.endpoint.api_keys
    if api_keys is not None:
        content["apiKeysDir"] = _API_KEYS_MOUNT
        # A volume rather than variables: the kubelet renews it without a restart. Not optional: a front router without
        # the keys that it was to have must not start.
        volumes = [{"name": API_KEYS_VOLUME, "secret": {"secretName": api_keys.secret_ref.name}}]
        mounts = [{"name": API_KEYS_VOLUME, "mountPath": _API_KEYS_MOUNT, "readOnly": True}]
    return [
        router_config(deployment, FRONT_ROUTER, content),
        router_deployment(deployment, component=FRONT_ROUTER, pools=pools, image=image, volumes=volumes, mounts=mounts),
    ]
