"""Server-side apply and removal in one member, never touching what is not ours."""

from collections.abc import Iterable, Mapping

from pdd_operator.clusters.kinds import BY_NAME
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.labels import ORPHANED, UID_LABEL, Manifest, Owner
from pdd_operator.plan.ownership import Key, adoptable, key, owned


class ForeignObjectError(Exception):
    """An object of the wanted name is there and somebody else's."""

    def __init__(self, manifest: Manifest) -> None:
        about = manifest["metadata"]
        super().__init__(f"{manifest['kind']} {about['namespace']}/{about['name']}")


async def apply(
    session: Session,
    owner: Owner,
    manifests: Iterable[Manifest],
    *,
    observed: Mapping[Key, Object],
) -> list[Object]:
    """Apply in the given order and return the objects as they are now.

    An object that is known to be ours is taken back from other managers by force. One that is not known is
    looked up; where there is none it is applied without force, so that one that appears in between is not
    taken over either.
    """
    applied = []
    for manifest in manifests:
        kind = BY_NAME[manifest["kind"]]
        ours = key(manifest) in observed
        if not ours:
            about = manifest["metadata"]
            found = await session.get(kind, about["name"], about["namespace"])
            ours = found is not None and (owned(owner, found) or adoptable(owner, found))
            if found is not None and not ours:
                raise ForeignObjectError(manifest)
        applied.append(await session.apply(kind, manifest, force=ours))
    return applied


async def remove(session: Session, objects: Iterable[Object]) -> None:
    """Delete the objects."""
    for found in objects:
        await session.delete(BY_NAME[found["kind"]], found)


async def orphan(session: Session, objects: Iterable[Object]) -> None:
    """Mark the objects as left behind, for a later namesake to adopt."""
    for found in objects:
        about = found["metadata"]
        body: Object = {"metadata": {"labels": {UID_LABEL: ORPHANED}}}
        await session.merge(BY_NAME[found["kind"]], about["name"], about["namespace"], body)
