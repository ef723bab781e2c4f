"""The charts, rendered by helm."""

import pathlib
import subprocess
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
CHARTS = ROOT / "charts"
OPERATOR = {"image": {"reference": "operator:1"}}
MEMBER = {"namespaces": [{"name": "llm", "create": True}, {"name": "chat"}]}
VALUES: dict[str, dict[str, Any]] = {"pdd-crds": {}, "pdd-operator": OPERATOR, "pdd-member": MEMBER}


def _helm(helm: str, *arguments: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm, *arguments, "--namespace", "pdd-system", "--values", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )


def _render(helm: str, chart: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    done = _helm(helm, "template", "release", str(CHARTS / chart), values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _of(kind: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


@pytest.mark.parametrize("chart", VALUES)
def test_lint(helm: str, chart: str) -> None:
    done = _helm(helm, "lint", "--strict", str(CHARTS / chart), values=VALUES[chart])
    assert done.returncode == 0, done.stdout + done.stderr


def test_crds_are_kept_on_uninstall(helm: str) -> None:
    definitions = _render(helm, "pdd-crds", {})
    assert len(definitions) == 3
    for definition in definitions:
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        plain = yaml.safe_load((ROOT / "crds" / f"{definition['metadata']['name']}.yaml").read_text())
        assert definition["spec"] == plain["spec"]


def test_operator_runs_restricted_and_alone(helm: str) -> None:
    (deployment,) = _of("Deployment", _render(helm, "pdd-operator", OPERATOR))
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_operator_has_no_rights_that_span_namespaces_beyond_its_own_api(helm: str) -> None:
    (role,) = _of("ClusterRole", _render(helm, "pdd-operator", OPERATOR))
    groups = {group for rule in role["rules"] for group in rule["apiGroups"]}
    assert groups == {"pdd.dev", "", "apiextensions.k8s.io"}
    assert not any("*" in rule["verbs"] or "secrets" in rule["resources"] for rule in role["rules"])


def test_operator_needs_an_image(helm: str) -> None:
    done = _helm(helm, "template", "release", str(CHARTS / "pdd-operator"), values={})
    assert done.returncode != 0
    assert "/image/reference" in done.stderr


def test_member_grants_by_namespace(helm: str) -> None:
    documents = _render(helm, "pdd-member", MEMBER)
    assert [role["metadata"]["namespace"] for role in _of("Role", documents)] == ["pdd-system", "llm", "chat"]
    (namespace,) = _of("Namespace", documents)
    assert namespace["metadata"]["name"] == "llm"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (cluster,) = _of("ClusterRole", documents)
    assert {verb for rule in cluster["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    rules = [(role["metadata"]["name"], rule) for role in _of("Role", documents) for rule in role["rules"]]
    secrets = [(name, rule["verbs"]) for name, rule in rules if "secrets" in rule["resources"]]
    assert secrets == [("pdd-operator-link-agents", ["get", "create", "patch", "delete"])]
    (account,) = _of("ServiceAccount", documents)
    assert account["metadata"]["name"] == "pdd-operator"


def test_member_on_the_hub_grants_to_the_operators_own_account(helm: str) -> None:
    subject = {"name": "pdd-operator", "namespace": "elsewhere"}
    documents = _render(helm, "pdd-member", {**MEMBER, "subject": subject})
    assert not _of("ServiceAccount", documents)
    for binding in _of("RoleBinding", documents) + _of("ClusterRoleBinding", documents):
        assert binding["subjects"] == [{"kind": "ServiceAccount", **subject}]


def test_member_refuses_half_a_subject(helm: str) -> None:
    values = {**MEMBER, "subject": {"name": "pdd-operator"}}
    assert _helm(helm, "template", "release", str(CHARTS / "pdd-member"), values=values).returncode != 0
