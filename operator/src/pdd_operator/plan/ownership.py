"""Which objects of a member are ours to change or to remove."""

from collections.abc import Iterable, Sequence

from pdd_operator.desired.labels import (
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    ORPHANED,
    Manifest,
    Owner,
)

Key = tuple[str, str]
"""Kind and name; all objects of an owner share a namespace."""


def key(manifest: Manifest) -> Key:
    """What tells an object from the others of its owner."""
    return manifest["kind"], manifest["metadata"]["name"]


def owned(owner: Owner, found: Manifest) -> bool:
    """Whether the object carries this owner's uid."""
    return _labels(found).get(owner.uid_label) == owner.uid


def adoptable(owner: Owner, found: Manifest) -> bool:
    """Whether a namesake of this owner left the object behind with deletionPolicy Orphan."""
    labels = _labels(found)
    return (
        labels.get(MANAGED_BY_LABEL) == MANAGER
        and labels.get(INSTANCE_LABEL) == owner.instance
        and labels.get(owner.uid_label) == ORPHANED
    )


def surplus(owner: Owner, *, observed: Iterable[Manifest], desired: Iterable[Manifest]) -> Sequence[Manifest]:
    """Objects of this owner that it no longer wants; never any other object."""
    wanted = {key(manifest) for manifest in desired}
    return [found for found in observed if owned(owner, found) and key(found) not in wanted]


def _labels(found: Manifest) -> dict[str, str]:
    return found["metadata"].get("labels") or {}
