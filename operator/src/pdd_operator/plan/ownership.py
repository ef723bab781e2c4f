"""Which objects of a member are ours to change or to remove."""

from collections.abc import Iterable, Sequence

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.desired.labels import (
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    ORPHANED,
    UID_LABEL,
    Manifest,
)

Key = tuple[str, str]
"""Kind and name; all objects of a PDDDeployment share its namespace."""


def key(manifest: Manifest) -> Key:
    """What tells an object from the others of its PDDDeployment."""
    return manifest["kind"], manifest["metadata"]["name"]


def owned(deployment: PDDDeployment, found: Manifest) -> bool:
    """Whether the object carries this PDDDeployment's uid."""
    return _labels(found).get(UID_LABEL) == deployment.metadata.uid


def adoptable(deployment: PDDDeployment, found: Manifest) -> bool:
    """Whether a namesake of this PDDDeployment left the object behind with deletionPolicy Orphan."""
    labels = _labels(found)
    return (
        labels.get(MANAGED_BY_LABEL) == MANAGER
        and labels.get(INSTANCE_LABEL) == deployment.metadata.name
        and labels.get(UID_LABEL) == ORPHANED
    )


def surplus(
    deployment: PDDDeployment, *, observed: Iterable[Manifest], desired: Iterable[Manifest]
) -> Sequence[Manifest]:
    """Objects of this PDDDeployment that it no longer wants; never any other object."""
    wanted = {key(manifest) for manifest in desired}
    return [found for found in observed if owned(deployment, found) and key(found) not in wanted]


def _labels(found: Manifest) -> dict[str, str]:
    return found["metadata"].get("labels") or {}
