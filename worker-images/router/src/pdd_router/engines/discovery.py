"""Which engines there are: the EndpointSlices of this site's Services, watched.

While the API server is away, the last known endpoints stay: the data plane does not depend on it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from kubernetes.aio.client import ApiClient, DiscoveryV1Api
from kubernetes.aio.config import load_incluster_config
from kubernetes.aio.watch import Watch

from pdd_router.engines.pool import Endpoint

_LOG = structlog.get_logger(__name__)
_SERVICE_LABEL = "kubernetes.io/service-name"
_WATCH_SECONDS = 300
_RETRY_SECONDS = 2.0

Update = Callable[[list[Endpoint]], None]


def ready_endpoints(slices: Iterable[Any]) -> list[Endpoint]:
    """The ready, not terminating pods of some EndpointSlices, by their port named `http`."""
    found = []
    for item in slices:
        port = next((p.port for p in item.ports or [] if p.name == "http"), None)
        for endpoint in item.endpoints or []:
            conditions = endpoint.conditions
            if port is None or not conditions or not conditions.ready or conditions.terminating:
                continue
            name = endpoint.target_ref.name if endpoint.target_ref else endpoint.addresses[0]
            found.append(Endpoint(name, f"http://{endpoint.addresses[0]}:{port}"))
    return found


class Discovery:
    """Feeds each Service's ready endpoints to its update function until cancelled."""

    def __init__(self, namespace: str, updates: Mapping[str, Update]):
        self._namespace = namespace
        self._updates = updates
        self._slices: dict[str, Any] = {}

    async def run(self) -> None:
        load_incluster_config()
        async with ApiClient() as api_client:
            api = DiscoveryV1Api(api_client)
            while True:
                try:
                    await self._follow(api)
                except Exception as error:
                    # Whatever an API server does to a watch (resets, half lines, nonsense) must not end a router.
                    what = f"{type(error).__name__}: {error}"
                    _LOG.warning("endpoints cannot be watched, keeping the last known", error=what)
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, api: DiscoveryV1Api) -> None:
        selector = f"{_SERVICE_LABEL} in ({','.join(sorted(self._updates))})"
        listed = await api.list_namespaced_endpoint_slice(self._namespace, label_selector=selector)
        self._slices = {item.metadata.name: item for item in listed.items}
        self._publish()
        async with Watch() as stream:
            async for event in stream.stream(
                api.list_namespaced_endpoint_slice,
                self._namespace,
                label_selector=selector,
                resource_version=listed.metadata.resource_version,
                timeout_seconds=_WATCH_SECONDS,
            ):
                item = event["object"]
                if event["type"] == "DELETED":
                    self._slices.pop(item.metadata.name, None)
                else:
                    self._slices[item.metadata.name] = item
                self._publish()

    def _publish(self) -> None:
        by_service: dict[str, list[Any]] = defaultdict(list)
        for item in self._slices.values():
            by_service[item.metadata.labels[_SERVICE_LABEL]].append(item)
        for service, update in self._updates.items():
            update(ready_endpoints(by_service[service]))
