from types import SimpleNamespace as N
from typing import Any

from pdd_router.engines.discovery import ready_endpoints
from pdd_router.engines.pool import Endpoint


def endpoint(ip: str, *, ready: bool = True, terminating: bool = False, pod: str | None = "pod") -> Any:
    return N(
        addresses=[ip],
        conditions=N(ready=ready, terminating=terminating),
        target_ref=N(name=pod) if pod else None,
    )


def test_only_ready_pods_count() -> None:
    item = N(
        ports=[N(name="kv", port=5600), N(name="http", port=8000)],
        endpoints=[
            endpoint("10.0.0.1", pod="p-1"),
            endpoint("10.0.0.2", ready=False),
            endpoint("10.0.0.3", terminating=True),
            endpoint("10.0.0.4", pod=None),
        ],
    )
    assert ready_endpoints([item]) == [
        Endpoint("p-1", "http://10.0.0.1:8000"),
        Endpoint("10.0.0.4", "http://10.0.0.4:8000"),
    ]


def test_a_slice_without_the_port_has_none() -> None:
    assert ready_endpoints([N(ports=None, endpoints=[endpoint("10.0.0.1")])]) == []
    assert ready_endpoints([N(ports=[N(name="http", port=8000)], endpoints=None)]) == []
