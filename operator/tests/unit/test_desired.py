"""What the members are to run, object by object."""

import json
from typing import Any

import pytest

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.desired.access import router_access
from pdd_operator.desired.engine import engines
from pdd_operator.desired.front_router import RemoteSite, endpoint, front_router, front_services
from pdd_operator.desired.labels import FRONT_ROUTER, MAIN_DECODE, PREFILL, RELAY_DECODE, Manifest
from pdd_operator.desired.link_agent import OtherEnd, agent_keys, agent_service, link_agent, link_owner
from pdd_operator.desired.main_router import main_router
from pdd_operator.desired.renderer import renderer
from pdd_operator.desired.sites import Images, desired_pods, front, main_site, prefill_site

from .example import deployment, link, member
from .golden import assert_golden

IMAGES = Images(engine="engine:1", router="router:1")
COMPUTE = member("site-a").spec.node_pools
MEMORY = member("site-b").spec.node_pools


def _sites(wanted: PDDDeployment) -> list[Manifest]:
    remote = RemoteSite(name="site-b", link=link(), addresses=["10.0.0.11:30080"])
    return [
        *prefill_site(wanted, pools=COMPUTE, images=IMAGES),
        *front(wanted, pools=COMPUTE, images=IMAGES, sites=[remote]),
        *main_site(wanted, placement=wanted.main_placement, pools=MEMORY, images=IMAGES),
    ]


def _container(manifest: Manifest) -> Any:
    return manifest["spec"]["template"]["spec"]["containers"][0]


def _environment(manifest: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in _container(manifest)["env"]}


def _prefill(**spec: Any) -> Manifest:
    wanted = deployment(**spec)
    role = wanted.spec.prefill
    return engines(wanted, component=PREFILL, role=role, pool=COMPUTE[0], image="engine:1")[1]


def test_prefill() -> None:
    wanted = deployment()
    assert_golden(
        "prefill",
        engines(wanted, component=PREFILL, role=wanted.spec.prefill, pool=COMPUTE[0], image="engine:1"),
    )


def test_relay_decode() -> None:
    wanted = deployment()
    assert_golden(
        "relay-decode",
        engines(wanted, component=RELAY_DECODE, role=wanted.spec.relay_decode, pool=COMPUTE[0], image="engine:1"),
    )


def test_main_decode() -> None:
    wanted = deployment()
    assert_golden(
        "main-decode",
        engines(wanted, component=MAIN_DECODE, role=wanted.main_placement, pool=MEMORY[0], image="engine:1"),
    )


def test_renderer() -> None:
    assert_golden("renderer", renderer(deployment(), pools=COMPUTE, image="engine:1"))


def test_front_router() -> None:
    remote = RemoteSite(name="site-b", link=link(), addresses=["10.0.0.11:30080"])
    wanted = deployment()
    assert_golden(
        "front-router",
        [
            *front_services(wanted),
            *front_router(wanted, pools=COMPUTE, image="router:1", sites=[remote]),
        ],
    )


def test_main_router() -> None:
    wanted = deployment()
    assert_golden(
        "main-router",
        main_router(wanted, placement=wanted.main_placement, pools=MEMORY, image="router:1"),
    )


def test_router_access() -> None:
    assert_golden("router-access", router_access(deployment(), FRONT_ROUTER))


def test_every_object_carries_the_uid_and_every_pod_is_restricted() -> None:
    for manifest in _sites(deployment()):
        labels = manifest["metadata"]["labels"]
        assert labels["pdd.dev/deployment-uid"] == "00000000-0000-0000-0000-000000000001"
        assert labels["app.kubernetes.io/managed-by"] == "pdd-operator"
        assert manifest["metadata"]["namespace"] == "llm"
        if manifest["kind"] != "Deployment":
            continue
        pod = manifest["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] == ("serviceAccountName" in pod)
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_selectors_hold_nothing_that_changes_with_the_object() -> None:
    for manifest in _sites(deployment()):
        selector = manifest["spec"].get("selector", {}) if "spec" in manifest else {}
        assert "pdd.dev/deployment-uid" not in selector.get("matchLabels", selector)


def test_suspended_scales_everything_to_zero() -> None:
    suspended = deployment(suspend=True)
    scales = [each["spec"]["replicas"] for each in _sites(suspended) if each["kind"] == "Deployment"]
    assert scales == [0] * 6
    assert set(desired_pods(suspended).values()) == {0}


@pytest.mark.parametrize(
    ("source", "model", "revision"),
    [
        ({"image": {"path": "/models/tiny"}}, "/models/tiny", ""),
        ({"persistentVolumeClaim": {"claimName": "weights", "path": "a/b"}}, "/models/pvc/a/b", ""),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, "/models/pvc", ""),
        ({"huggingFace": {"repo": "org/model", "revision": "abc"}}, "org/model", "abc"),
    ],
)
def test_model_source(source: dict[str, Any], model: str, revision: str) -> None:
    environment = _environment(_prefill(model={"name": "m", "source": source}))
    assert environment["PDD_MODEL"] == model
    assert environment["PDD_MODEL_REVISION"] == revision


def test_claim_is_mounted_read_only() -> None:
    source = {"persistentVolumeClaim": {"claimName": "weights"}}
    manifest = _prefill(model={"name": "m", "source": source})
    assert {"name": "model", "mountPath": "/models/pvc", "readOnly": True} in _container(manifest)["volumeMounts"]
    claim = {"claimName": "weights", "readOnly": True}
    volumes = manifest["spec"]["template"]["spec"]["volumes"]
    assert {"name": "model", "persistentVolumeClaim": claim} in volumes


def test_hub_token_comes_from_its_secret() -> None:
    source = {"huggingFace": {"repo": "org/model", "tokenSecretRef": {"name": "hub", "key": "token"}}}
    environment = _environment(_prefill(model={"name": "m", "source": source}))
    assert environment["HF_TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_tensor_parallel_takes_chips() -> None:
    prefill = {
        "cluster": "site-a",
        "nodePool": "compute",
        "parallelism": {"tensor": 4},
        "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "6Gi"}},
    }
    manifest = _prefill(prefill=prefill)
    assert _container(manifest)["resources"] == {
        "requests": {"cpu": "2", "example.com/chip-a": "4"},
        "limits": {"memory": "6Gi", "example.com/chip-a": "4"},
    }
    assert _environment(manifest)["PDD_TENSOR_PARALLEL"] == "4"


def test_a_roles_arguments_come_last_and_its_variables_win() -> None:
    manifest = _prefill(
        engine={"args": ["--a"], "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]},
        prefill={
            "cluster": "site-a",
            "nodePool": "compute",
            "engine": {"args": ["--b"], "env": [{"name": "X", "value": "2"}]},
        },
    )
    assert _container(manifest)["args"] == ["--a", "--b"]
    environment = _environment(manifest)
    assert (environment["X"], environment["Y"]) == ("2", "1")


def test_startup_timeout_becomes_the_probes_budget() -> None:
    probe = _container(_prefill(engine={"startupTimeoutSeconds": 3600}))["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 3600


def test_the_renderer_gets_the_arguments_of_all_engines() -> None:
    wanted = deployment(engine={"args": ["--tool-call-parser", "hermes"]}, renderer={"replicas": 2})
    manifest = renderer(wanted, pools=COMPUTE, image="engine:1")[1]
    assert _container(manifest)["args"] == ["--tool-call-parser", "hermes"]
    assert manifest["spec"]["replicas"] == 2


def _front_router(**spec: Any) -> tuple[dict[str, Any], Manifest]:
    """Its configuration and its Deployment."""
    config_map, manifest = front_router(deployment(**spec), pools=COMPUTE, image="router:1", sites=[])
    return json.loads(config_map["data"]["router.json"]), manifest


def test_api_keys_are_a_volume_of_the_front_router_and_of_nothing_else() -> None:
    keys = {"apiKeys": {"secretRef": {"name": "keys"}}}
    config, manifest = _front_router(endpoint=keys)
    assert config["apiKeysDir"] == "/etc/pdd/api-keys"
    mount = {"name": "api-keys", "mountPath": "/etc/pdd/api-keys", "readOnly": True}
    assert mount in _container(manifest)["volumeMounts"]
    assert {"name": "api-keys", "secret": {"secretName": "keys"}} in manifest["spec"]["template"]["spec"]["volumes"]
    holders = [each["metadata"]["name"] for each in _sites(deployment(endpoint=keys)) if "api-keys" in json.dumps(each)]
    assert holders == ["assistant-front-router"] * 2


def test_without_api_keys_nothing_is_mounted() -> None:
    config, manifest = _front_router()
    assert "apiKeysDir" not in config
    assert "api-keys" not in json.dumps(manifest)


def test_how_many_requests_a_front_router_takes() -> None:
    assert _front_router()[0]["routing"]["maxRequests"] == 256
    assert _front_router(routing={"maxRequests": 8})[0]["routing"]["maxRequests"] == 8


def test_every_pod_leaves_its_service_first_and_has_the_time_to_end_its_work() -> None:
    for manifest in _sites(deployment()):
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pause == 5
            assert pod["terminationGracePeriodSeconds"] > pause + 60
            assert container["livenessProbe"]["httpGet"]["path"] in {"/health", "/healthz"}


def test_endpoint() -> None:
    assert endpoint(deployment()) == "http://assistant.llm.svc:8000/v1"


def test_link_agent() -> None:
    line = link()
    line.metadata.uid = "00000000-0000-0000-0000-000000000002"
    owner = link_owner(line, "pdd-system")
    other = OtherEnd("site-b", ["10.0.0.11:30741", "[fd00::1]:30741"], "10.0.0.11:30080")
    agents = link_agent(owner, line, site="site-a", other=other, pools=COMPUTE, image="link:1")
    assert_golden("link-agent", [agent_service(owner, line), agent_keys(owner, line, "a2V5"), *agents])
