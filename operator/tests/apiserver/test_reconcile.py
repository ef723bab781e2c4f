"""The reconcilers against two real API servers."""

import asyncio
import base64
from typing import Any

import pytest
import yaml

from pdd_operator.clusters.errors import UnreachableError
from pdd_operator.clusters.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    MEMBER_CLUSTER,
    PDD_DEPLOYMENT,
    POD,
    SECRET,
    SERVICE,
    WAN_LINK,
)

from .world import SYSTEM, World, condition

pytestmark = pytest.mark.apiserver

HERE = {
    ("ConfigMap", "assistant-front-router"),
    ("Deployment", "assistant-front-router"),
    ("Deployment", "assistant-prefill"),
    ("Deployment", "assistant-relay-decode"),
    ("Deployment", "assistant-renderer"),
    ("Role", "assistant-router"),
    ("RoleBinding", "assistant-router"),
    ("Service", "assistant"),
    ("Service", "assistant-front-router"),
    ("Service", "assistant-prefill"),
    ("Service", "assistant-relay-decode"),
    ("Service", "assistant-renderer"),
    ("ServiceAccount", "assistant-router"),
}
THERE = {
    ("ConfigMap", "assistant-main-router"),
    ("Deployment", "assistant-main-decode"),
    ("Deployment", "assistant-main-router"),
    ("Role", "assistant-router"),
    ("RoleBinding", "assistant-router"),
    ("Service", "assistant-main-decode"),
    ("Service", "assistant-main-router"),
    ("ServiceAccount", "assistant-router"),
}


async def test_both_sites_get_their_objects(world: World) -> None:
    await world.create()
    found = await world.reconcile()

    assert set(await world.owned(world.hub)) == HERE
    there = await world.owned(world.remote)
    assert set(there) == THERE
    port = there["Service", "assistant-main-router"]["spec"]["ports"][0]["nodePort"]
    (site,) = (await world.front_config())["sites"]
    assert site["addresses"] == [f"10.9.0.1:{port}"]
    assert found["metadata"]["finalizers"] == ["pdd.dev/cleanup"]
    assert condition(found, "Ready")["status"] == "False"
    assert condition(found, "Reconciling")["status"] == "True"
    assert found["status"]["endpoint"] == f"http://assistant.{world.namespace}.svc:8000/v1"
    assert found["status"]["summary"] == {"prefill": "0/4", "relayDecode": "0/1", "mainDecode": "0/6"}


async def test_ready_once_every_role_is(world: World) -> None:
    await world.create()
    await world.reconcile()
    await world.pretend_ready()
    found = await world.reconcile()

    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "Stalled")["status"] == "False"
    assert condition(found, "LinkReady")["status"] == "Unknown"
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_nothing_is_written_at_rest(world: World) -> None:
    await world.create()
    await world.reconcile()
    await world.pretend_ready()
    await world.reconcile()
    await world.visit(WAN_LINK, "a-b")
    await world.reconcile()
    before = await world.versions()

    for _ in range(3):
        await world.reconcile()
        await world.visit(WAN_LINK, "a-b")

    assert await world.versions() == before


async def test_a_first_status_is_there_before_the_members_were_met(world: World) -> None:
    await world.create()
    await world.visit(PDD_DEPLOYMENT, "assistant")

    found = await world.read()
    assert condition(found, "Ready")["status"] == "Unknown"
    assert not await world.owned(world.hub)


async def test_changes_are_followed_and_drift_is_undone(world: World) -> None:
    await world.create()
    await world.reconcile()
    change: dict[str, Any] = {"spec": {"prefill": {"replicas": 2}}}
    await world.hub.merge(PDD_DEPLOYMENT, "assistant", world.namespace, change)
    drift: dict[str, Any] = {"spec": {"replicas": 9}}
    await world.hub.merge(DEPLOYMENT, "assistant-renderer", world.namespace, drift)
    await world.reconcile()

    owned = await world.owned(world.hub)
    assert owned["Deployment", "assistant-prefill"]["spec"]["replicas"] == 2
    assert owned["Deployment", "assistant-renderer"]["spec"]["replicas"] == 1


async def test_what_is_no_longer_wanted_is_removed_and_nothing_else(world: World) -> None:
    created = await world.create()
    stray: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "left-over",
            "namespace": world.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "pdd-operator",
                "pdd.dev/deployment-uid": created["metadata"]["uid"],
            },
        },
    }
    foreign: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "somebody-elses", "namespace": world.namespace},
    }
    for body in (stray, foreign):
        await world.remote.create(CONFIG_MAP, body)
    await world.reconcile()

    assert await world.remote.get(CONFIG_MAP, "left-over", world.namespace) is None
    assert await world.remote.get(CONFIG_MAP, "somebody-elses", world.namespace) is not None


async def test_api_keys_reach_the_front_router_and_a_missing_secret_is_named(world: World) -> None:
    wanted = world.deployment
    wanted["spec"]["endpoint"] = {"apiKeys": {"secretRef": {"name": "keys"}}}
    wanted["spec"]["routing"] = {"maxRequests": 8}
    await world.create(wanted)
    await world.reconcile()

    config = await world.front_config()
    assert config["apiKeysDir"] == "/etc/pdd/api-keys"
    assert config["routing"]["maxRequests"] == 8
    pod = (await world.owned(world.hub))["Deployment", "assistant-front-router"]["spec"]["template"]["spec"]
    assert {"name": "api-keys", "mountPath": "/etc/pdd/api-keys", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]
    assert pod["volumes"][-1] == {"name": "api-keys", "secret": {"secretName": "keys", "defaultMode": 420}}
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}

    await world.pretend_ready()
    started = {"type": "PodReadyToStartContainers", "status": "False"}
    waiting = await world.front_router_pod(
        0, phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}, started]
    )
    await world.hub.create(EVENT, _failed_mount(waiting, "keys"))
    again = await world.visit(PDD_DEPLOYMENT, "assistant")
    found = await world.read()
    stalled = condition(found, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "SecretNotFound")
    assert f"there is no Secret {world.namespace}/keys on site-a" in stalled["message"]
    assert condition(found, "Ready")["reason"] == "SecretNotFound"
    assert again == 10

    started["status"] = "True"
    current = await world.hub.get(POD, waiting["metadata"]["name"], world.namespace)
    assert current is not None
    conditions = [{"type": "PodScheduled", "status": "True"}, started]
    await world.hub.replace_status(POD, {**current, "status": {**current["status"], "conditions": conditions}})
    found = await world.reconcile()
    assert condition(found, "Stalled")["status"] == "False"


def _failed_mount(pod: dict[str, Any], secret: str) -> dict[str, Any]:
    """As a kubelet says it."""
    about = pod["metadata"]
    subject = {key: about[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.1", "namespace": about["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **subject},
        "type": "Warning",
        "reason": "FailedMount",
        "message": f'MountVolume.SetUp failed for volume "api-keys" : secret "{secret}" not found',
    }


async def test_a_foreign_object_is_never_taken_over(world: World) -> None:
    foreign: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "assistant", "namespace": world.namespace},
        "spec": {"ports": [{"port": 80}]},
    }
    made = await world.hub.create(SERVICE, foreign)
    await world.create()
    found = await world.reconcile()

    stalled = condition(found, "Stalled")
    assert stalled["status"] == "True"
    assert stalled["reason"] == "ForeignObject"
    assert f"Service {world.namespace}/assistant on site-a" in stalled["message"]
    assert await world.hub.get(SERVICE, "assistant", world.namespace) == made

    await world.hub.delete(SERVICE, made)
    found = await world.reconcile()
    assert condition(found, "Stalled")["status"] == "False"
    assert ("Service", "assistant") in await world.owned(world.hub)


async def test_deletion_leaves_nothing_in_either_cluster(world: World) -> None:
    created = await world.create()
    await world.reconcile()
    await world.hub.delete(PDD_DEPLOYMENT, created)
    for _ in range(3):
        await world.visit(PDD_DEPLOYMENT, "assistant")

    assert await world.hub.get(PDD_DEPLOYMENT, "assistant", world.namespace) is None
    assert not await world.owned(world.hub)
    assert not await world.owned(world.remote)


async def test_orphaned_objects_stay_and_are_adopted_by_a_namesake(world: World) -> None:
    orphan = world.deployment
    orphan["spec"]["deletionPolicy"] = "Orphan"
    created = await world.create(orphan)
    await world.reconcile()
    await world.hub.delete(PDD_DEPLOYMENT, created)
    await world.visit(PDD_DEPLOYMENT, "assistant")
    assert await world.hub.get(PDD_DEPLOYMENT, "assistant", world.namespace) is None
    before = await world.owned(world.remote)
    assert set(before) == THERE

    again = await world.create()
    found = await world.reconcile()
    assert condition(found, "Stalled")["status"] == "False"
    after = await world.owned(world.remote)
    for key, adopted in after.items():
        assert adopted["metadata"]["uid"] == before[key]["metadata"]["uid"]
        assert adopted["metadata"]["labels"]["pdd.dev/deployment-uid"] == again["metadata"]["uid"]


async def test_silence_of_a_member_changes_nothing_and_deletion_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await world.create()
    await world.reconcile()
    await world.pretend_ready()
    await world.reconcile()
    config, there = await world.front_config(), await world.owned(world.remote)

    member = world.supervisor.context.members.get("site-b")
    assert member is not None
    assert member.session is not None

    async def silent(*_: object, **__: object) -> None:
        raise UnreachableError("no answer in time")

    monkeypatch.setattr(member.session, "_send", silent)
    found = await world.reconcile()
    assert condition(found, "Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "Unknown",
        "reason": "MemberUnreachable",
        "message": "site-b cannot be reached; what runs there is left alone; see the MemberCluster's conditions",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    assert found["status"]["summary"]["mainDecode"] == "6/6"
    assert await world.front_config() == config
    lost = await world.hub.get(MEMBER_CLUSTER, "site-b")
    assert lost is not None
    assert condition(lost, "Ready")["status"] == "Unknown"
    assert lost["status"]["lostSince"]
    assert lost["status"]["kubernetesVersion"]

    await world.hub.delete(PDD_DEPLOYMENT, created)
    await world.visit(PDD_DEPLOYMENT, "assistant")
    found = await world.read()
    assert "waiting for site-b" in condition(found, "Ready")["message"]
    assert await world.owned(world.remote) == there

    monkeypatch.undo()
    await world.meet_members()
    for _ in range(3):
        await world.visit(PDD_DEPLOYMENT, "assistant")
    assert not await world.owned(world.remote)
    assert await world.hub.get(PDD_DEPLOYMENT, "assistant", world.namespace) is None


async def test_one_cluster_under_two_names_is_noticed(world: World) -> None:
    (_, twin) = world.examples(MEMBER_CLUSTER)
    twin["metadata"]["name"] = "site-c"
    await world.hub.create(MEMBER_CLUSTER, twin)
    await world.meet_members()
    await world.visit(MEMBER_CLUSTER, "site-c")

    found = await world.hub.get(MEMBER_CLUSTER, "site-c")
    assert found is not None
    assert condition(found, "Ready")["reason"] == "SameCluster"


async def test_member_status_counts_pools_and_credentials_can_be_renewed(world: World) -> None:
    await world.meet_members()
    found = await world.hub.get(MEMBER_CLUSTER, "site-b")
    assert found is not None
    assert found["status"]["nodePools"] == [
        {"name": "memory", "nodes": 1, "ready": 1, "chips": {"allocatable": 8, "free": 8}}
    ]
    assert found["status"]["chips"] == "memory 8/8"

    await world.hub.merge(SECRET, "site-b", SYSTEM, {"data": {"kubeconfig": "bm90aGluZw=="}})
    await world.meet_members()
    found = await world.hub.get(MEMBER_CLUSTER, "site-b")
    assert found is not None
    assert condition(found, "Ready")["reason"] == "BadCredentials"

    await world.hub.merge(SECRET, "site-b", SYSTEM, {"data": {"kubeconfig": world.kubeconfig}})
    await world.meet_members()
    found = await world.hub.get(MEMBER_CLUSTER, "site-b")
    assert found is not None
    assert condition(found, "Ready")["status"] == "True"
    assert "lostSince" not in found["status"]


async def test_changes_in_a_member_wake_the_loop(world: World) -> None:
    await world.create()
    await world.reconcile()
    woken = asyncio.Event()
    world.supervisor.context.loops.wake = lambda *_, **__: woken.set()  # type: ignore[method-assign]
    await asyncio.sleep(0.5)
    await world.remote.merge(
        DEPLOYMENT, "assistant-main-decode", world.namespace, {"metadata": {"annotations": {"a": "b"}}}
    )
    await asyncio.wait_for(woken.wait(), timeout=5)


async def test_a_site_that_hangs_does_not_keep_the_other_waiting(world: World) -> None:
    accepted: list[asyncio.StreamWriter] = []
    hole = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    document = yaml.safe_load(base64.b64decode(world.kubeconfig))
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{hole.sockets[0].getsockname()[1]}"
    encoded = base64.b64encode(yaml.safe_dump(document).encode()).decode()
    await world.hub.merge(SECRET, "site-b", SYSTEM, {"data": {"kubeconfig": encoded}})
    await world.create()

    hanging = asyncio.create_task(world.visit(MEMBER_CLUSTER, "site-b"))
    async with asyncio.timeout(5):
        await world.visit(MEMBER_CLUSTER, "site-a")
        await world.visit(PDD_DEPLOYMENT, "assistant")
    assert not hanging.done()
    assert set(await world.owned(world.hub)) == HERE
    assert (await world.front_config())["sites"][0]["addresses"] == []

    async with asyncio.timeout(15):
        await hanging
    await world.visit(PDD_DEPLOYMENT, "assistant")
    ready = condition(await world.read(), "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "MemberUnreachable")
    hole.close()
    for writer in accepted:
        writer.close()
