"""What holds of the manifests and of pruning for every input."""

import copy
import pathlib
import string
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdd_operator.api import MemberCluster, PDDDeployment, WANLink
from pdd_operator.desired.front_router import RemoteSite
from pdd_operator.desired.labels import UID_LABEL, Manifest, owner
from pdd_operator.desired.sites import Images, desired_pods, front, main_site, prefill_site
from pdd_operator.plan.nodes import Node, addresses
from pdd_operator.plan.ownership import key, surplus

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "two-sites.yaml"
SITE_A, SITE_B, LINK, DEPLOYMENT = yaml.safe_load_all(EXAMPLE.read_text())
COMPUTE = MemberCluster.model_validate(SITE_A).spec.node_pools
MEMORY = MemberCluster.model_validate(SITE_B).spec.node_pools

names = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
uids = st.uuids().map(str)
variables = st.dictionaries(st.sampled_from(["A", "B", "C", "HF_HOME"]), st.text(string.ascii_letters, max_size=5)).map(
    lambda items: [{"name": name, "value": value} for name, value in items.items()]
)


@st.composite
def deployments(draw: st.DrawFn) -> PDDDeployment:
    document: dict[str, Any] = copy.deepcopy(DEPLOYMENT)
    document["metadata"] |= {"name": draw(names), "uid": draw(uids)}
    spec = document["spec"]
    spec["suspend"] = draw(st.booleans())
    spec["engine"] = {"env": draw(variables)}
    for role in (spec["prefill"], spec["relayDecode"], spec["mainDecode"]["placements"][0]):
        role["replicas"] = draw(st.integers(1, 1000))
        role["parallelism"] = {"tensor": draw(st.integers(1, 64))}
        role["engine"] = {"env": draw(variables)}
    return PDDDeployment.model_validate(document)


def _objects(wanted: PDDDeployment) -> tuple[list[Manifest], list[Manifest]]:
    images = Images(engine="engine:1", router="router:1")
    remote = RemoteSite(name="site-b", link=WANLink.model_validate(LINK), addresses=["10.0.0.1:30000"])
    here = [
        *prefill_site(wanted, pools=COMPUTE, images=images),
        *front(wanted, pools=COMPUTE, images=images, sites=[remote]),
    ]
    there = main_site(wanted, placement=wanted.main_placement, pools=MEMORY, images=images)
    return here, there


@given(deployments())
def test_builders_are_functions_of_their_input(wanted: PDDDeployment) -> None:
    assert _objects(wanted) == _objects(wanted.model_copy(deep=True))


@given(deployments())
def test_objects_of_a_site_have_names_of_their_own_that_fit(wanted: PDDDeployment) -> None:
    for objects in _objects(wanted):
        assert len({key(each) for each in objects}) == len(objects)
        assert all(len(each["metadata"]["name"]) <= 63 for each in objects)


@given(deployments())
def test_every_wanted_pod_is_in_exactly_one_deployment(wanted: PDDDeployment) -> None:
    replicas = {
        (each["metadata"]["labels"]["app.kubernetes.io/component"], cluster): each["spec"]["replicas"]
        for cluster, objects in zip(("site-a", "site-b"), _objects(wanted), strict=True)
        for each in objects
        if each["kind"] == "Deployment"
    }
    assert replicas == desired_pods(wanted)


@given(deployments())
def test_a_variable_is_given_once(wanted: PDDDeployment) -> None:
    for each in (*_objects(wanted)[0], *_objects(wanted)[1]):
        if each["kind"] == "Deployment":
            given_names = [item["name"] for item in each["spec"]["template"]["spec"]["containers"][0].get("env", [])]
            assert len(set(given_names)) == len(given_names)


@given(deployments(), st.data())
def test_pruning_never_selects_what_is_not_ours_or_still_wanted(wanted: PDDDeployment, data: st.DataObject) -> None:
    desired = _objects(wanted)[0]
    label_sets = st.one_of(
        st.none(),
        st.dictionaries(st.sampled_from([UID_LABEL, "a"]), st.sampled_from([wanted.metadata.uid, "other"])),
    )
    strangers = [
        {"kind": kind, "metadata": {"name": name} | ({} if carried is None else {"labels": carried})}
        for kind, name, carried in data.draw(
            st.lists(st.tuples(st.sampled_from(["Service", "Deployment"]), names, label_sets), max_size=8)
        )
    ]
    gone = surplus(owner(wanted), observed=[*desired, *strangers], desired=desired)
    wanted_keys = {key(each) for each in desired}
    for each in gone:
        assert each["metadata"]["labels"][UID_LABEL] == wanted.metadata.uid
        assert key(each) not in wanted_keys
    for each in strangers:
        carried = each["metadata"].get("labels") or {}
        if carried.get(UID_LABEL) == wanted.metadata.uid and key(each) not in wanted_keys:
            assert each in gone


@given(
    st.lists(
        st.builds(
            Node,
            name=names,
            ready=st.booleans(),
            schedulable=st.booleans(),
            internal_ip=st.ip_addresses(v=4).map(str),
            labels=st.just({}),
            allocatable=st.just({}),
        )
    ),
    st.randoms(),
)
def test_addresses_do_not_depend_on_the_order_of_nodes(nodes: list[Node], shuffle: Any) -> None:
    service = {"spec": {"ports": [{"nodePort": 30000}]}}
    found = addresses(nodes, service)
    shuffle.shuffle(nodes)
    assert addresses(nodes, service) == found
    assert len(found) == min(3, sum(node.ready for node in nodes))
