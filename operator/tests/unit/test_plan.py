"""References, ownership, nodes and addresses."""

from typing import Any

import pytest

from pdd_operator.api import MemberCluster, WANLink
from pdd_operator.desired.labels import labels, owner
from pdd_operator.desired.sites import Images
from pdd_operator.plan.known_addresses import known_addresses
from pdd_operator.plan.nodes import Node, addresses, node
from pdd_operator.plan.ownership import adoptable, owned, surplus
from pdd_operator.plan.problem import Problem
from pdd_operator.plan.references import References, resolve

from .example import deployment, link, member

MEMBERS = {"site-a": member("site-a"), "site-b": member("site-b")}
IMAGES = Images(engine="engine:1", router="router:1")


def _resolve(
    members: dict[str, MemberCluster] = MEMBERS,
    links: list[WANLink] | None = None,
    images: Images = IMAGES,
    **spec: Any,
) -> References | Problem:
    return resolve(
        deployment(**spec),
        members=members,
        links=[link()] if links is None else links,
        default_images=images,
    )


def test_references_of_the_example() -> None:
    found = _resolve()
    assert isinstance(found, References)
    assert found.link.metadata.name == "a-b"
    assert found.images == IMAGES
    assert [pool.name for pool in found.main_pools] == ["memory"]


def test_a_named_image_wins_over_the_default() -> None:
    found = _resolve(engine={"image": "engine:2"})
    assert isinstance(found, References)
    assert found.images == Images(engine="engine:2", router="router:1")


@pytest.mark.parametrize(
    ("arguments", "reason", "text"),
    [
        ({"members": {"site-a": MEMBERS["site-a"]}}, "MemberClusterNotFound", "MemberCluster site-b"),
        (
            {"relayDecode": {"nodePool": "relay"}},
            "NodePoolNotFound",
            "spec.relayDecode.nodePool: MemberCluster site-a has no pool relay; it has compute",
        ),
        ({"links": []}, "WANLinkNotFound", "no WANLink joins site-a and site-b"),
        ({"links": [link(), link()]}, "AmbiguousWANLink", "keep one"),
        ({"images": Images(engine="", router="r")}, "NoImage", "spec.engine.image"),
        ({"images": Images(engine="e", router="")}, "NoImage", "spec.router.image"),
    ],
)
def test_a_reference_that_leads_nowhere(arguments: dict[str, Any], reason: str, text: str) -> None:
    found = _resolve(**arguments)
    assert isinstance(found, Problem)
    assert found.reason == reason
    assert text in found.message
    assert found.needs_help


def _object(name: str, carried: dict[str, str] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "llm"}
    return {"kind": "ConfigMap", "metadata": metadata if carried is None else {**metadata, "labels": carried}}


def test_only_our_uid_makes_an_object_ours() -> None:
    wanted = deployment()
    ours = labels(wanted, "front-router")
    other = {**ours, "pdd.dev/deployment-uid": "another"}
    observed = [
        _object("kept", ours),
        _object("stale", ours),
        _object("namesake", other),
        _object("plain", None),
    ]
    gone = surplus(owner(wanted), observed=observed, desired=[_object("kept", ours)])
    assert [each["metadata"]["name"] for each in gone] == ["stale"]
    assert not owned(owner(wanted), observed[2])


def test_only_what_was_orphaned_by_a_namesake_is_adopted() -> None:
    wanted = deployment()
    left = {**labels(wanted, "front-router"), "pdd.dev/deployment-uid": "orphaned"}
    assert adoptable(owner(wanted), _object("x", left))
    assert not adoptable(owner(wanted), _object("x", {**left, "app.kubernetes.io/instance": "another"}))
    assert not adoptable(owner(wanted), _object("x", {**left, "app.kubernetes.io/managed-by": "Helm"}))
    assert not adoptable(owner(wanted), _object("x", labels(wanted, "front-router")))


def _node(name: str, ip: str, ready: bool = True) -> Node:
    return Node(name=name, ready=ready, schedulable=True, internal_ip=ip, labels={}, allocatable={})


def test_addresses_are_sorted_ready_and_few() -> None:
    service = {"spec": {"ports": [{"port": 8000, "nodePort": 30080}]}}
    nodes = [_node(ip, ip) for ip in ("10.0.0.4", "10.0.0.2", "10.0.0.3", "10.0.0.5")]
    assert addresses([*nodes, _node("down", "10.0.0.1", ready=False)], service) == [
        "10.0.0.2:30080",
        "10.0.0.3:30080",
        "10.0.0.4:30080",
    ]
    assert addresses([_node("six", "fd00::1")], service) == ["[fd00::1]:30080"]
    assert addresses(nodes, {"spec": {"ports": [{"port": 8000}]}}) == []


def test_node_as_read() -> None:
    found = node(
        {
            "metadata": {"name": "b1", "labels": {"a": "b"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [
                    {"type": "Hostname", "address": "b1"},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                ],
                "allocatable": {"cpu": "2"},
            },
        }
    )
    assert (found.ready, found.schedulable, found.internal_ip) == (False, False, "10.0.0.1")


@pytest.mark.parametrize(
    ("config_map", "expected"),
    [
        ({"data": {"router.json": '{"sites": [{"name": "site-b", "addresses": ["x:1"]}]}'}}, ["x:1"]),
        ({"data": {"router.json": '{"sites": [{"name": "site-c", "addresses": ["x:1"]}]}'}}, []),
        ({"data": {"router.json": "no JSON"}}, []),
        ({"data": None}, []),
        (None, []),
    ],
)
def test_known_addresses(config_map: dict[str, Any] | None, expected: list[str]) -> None:
    assert known_addresses(config_map, "site-b") == expected
