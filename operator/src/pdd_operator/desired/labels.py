"""Names and labels of everything that a PDDDeployment or a WANLink owns."""

from dataclasses import dataclass
from typing import Any, Final

from pdd_operator.api.pdd_deployment import PDDDeployment

Manifest = dict[str, Any]

PREFILL: Final = "prefill"
RELAY_DECODE: Final = "relay-decode"
MAIN_DECODE: Final = "main-decode"
RENDERER: Final = "renderer"
FRONT_ROUTER: Final = "front-router"
MAIN_ROUTER: Final = "main-router"

MANAGER: Final = "pdd-operator"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
UID_LABEL: Final = "pdd.dev/deployment-uid"
LINK_UID_LABEL: Final = "pdd.dev/link-uid"
ORPHANED: Final = "orphaned"
"""Value of the uid label on objects that a deletion with policy Orphan left behind."""


@dataclass(frozen=True)
class Owner:
    """Whose the objects in a namespace of a member are: who carries `uid` under `uid_label` is theirs."""

    kind: str
    instance: str
    namespace: str
    uid: str
    uid_label: str
    remedy: str
    """What to do where the operator may not work in that namespace."""

    @property
    def selector(self) -> str:
        """Chooses everything of theirs."""
        return f"{self.uid_label}={self.uid}"


def owner(deployment: PDDDeployment) -> Owner:
    """The PDDDeployment as an owner."""
    about = deployment.metadata
    remedy = f"add namespace {about.namespace} to the chart pdd-member there"
    return Owner(deployment.kind, about.name, about.namespace, about.uid, UID_LABEL, remedy)


def object_name(deployment: PDDDeployment, suffix: str) -> str:
    """The name of the object of that role."""
    return f"{deployment.metadata.name}-{suffix}"


def selector(deployment: PDDDeployment, component: str) -> dict[str, str]:
    """The labels that choose the pods of a component; they never change for a name."""
    return {
        "app.kubernetes.io/name": "pdd",
        INSTANCE_LABEL: deployment.metadata.name,
        COMPONENT_LABEL: component,
    }


def labels(deployment: PDDDeployment, component: str) -> dict[str, str]:
    """The labels of an object or pod of a component."""
    return {
        **selector(deployment, component),
        MANAGED_BY_LABEL: MANAGER,
        UID_LABEL: deployment.metadata.uid,
    }


def metadata(deployment: PDDDeployment, name: str, component: str) -> Manifest:
    """Metadata of an object in a member."""
    return {
        "name": name,
        "namespace": deployment.metadata.namespace,
        "labels": labels(deployment, component),
    }
