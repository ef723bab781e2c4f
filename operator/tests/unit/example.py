"""The example's objects, as the operator reads them, with what a test changes."""

import copy
import pathlib
from typing import Any

import yaml

from pdd_operator.api import MemberCluster, PDDDeployment, WANLink

PATH = pathlib.Path(__file__).parents[2] / "examples" / "two-sites.yaml"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(PATH.read_text()))


def _document(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in DOCUMENTS if each["kind"] == kind and each["metadata"]["name"] == name)
    return copy.deepcopy(found)


def deployment(**spec: Any) -> PDDDeployment:
    """The example PDDDeployment; keys of its spec given here replace what is there."""
    document = _document("PDDDeployment", "assistant")
    document["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000001", "generation": 3}
    document["spec"] |= spec
    return PDDDeployment.model_validate(document)


def member(name: str) -> MemberCluster:
    """One of the example MemberClusters."""
    return MemberCluster.model_validate(_document("MemberCluster", name))


def link(**spec: Any) -> WANLink:
    """The example WANLink."""
    document = _document("WANLink", "a-b")
    document["metadata"]["generation"] = 2
    document["spec"] |= spec
    return WANLink.model_validate(document)
