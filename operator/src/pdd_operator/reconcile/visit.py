"""One member cluster during one visit to an object of the hub: what of that object's is there, and what is done."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from pdd_operator.apply import ForeignObjectError, apply, remove
from pdd_operator.clusters.errors import ApiError, ConflictError, UnreachableError
from pdd_operator.clusters.kinds import NAMESPACE, POD, Kind
from pdd_operator.clusters.registry import Member
from pdd_operator.clusters.session import Object, Session
from pdd_operator.desired.labels import Manifest, Owner
from pdd_operator.plan.ownership import Key, key, surplus
from pdd_operator.plan.problem import Problem

_SECONDS: Final = 20.0
"""For each step; a member that takes longer is left for the next visit, so the other one does not wait."""


class MemberVisit:
    """What was seen and done there. A step after a failed one does nothing."""

    def __init__(self, cluster: str, member: Member | None, owner: Owner, kinds: Sequence[Kind]) -> None:
        self.cluster = cluster
        self.owner = owner
        self.pods: list[Object] = []
        self.problems: list[Problem] = []
        self.objects: dict[Key, Object] = {}
        self._kinds = kinds
        self._session: Session | None = member.session if member and member.connected else None
        self.reachable = self._session is not None

    @property
    def usable(self) -> bool:
        """Whether every step so far went well."""
        return self.reachable and not self.problems

    async def observe(self) -> None:
        """List everything of the owner's."""
        async with self.step() as session:
            if session is not None:
                objects, self.pods = await owned_objects(session, self.owner, self._kinds)
                self.objects = {key(found): found for found in objects}

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply in order."""
        async with self.step() as session:
            if session is not None:
                applied = await apply(session, self.owner, manifests, observed=self.objects)
                self.objects |= {key(found): found for found in applied}

    async def prune(self, desired: Iterable[Manifest]) -> None:
        """Remove what is the owner's and no longer wanted."""
        async with self.step() as session:
            if session is not None:
                await remove(session, surplus(self.owner, observed=self.objects.values(), desired=desired))

    @contextlib.asynccontextmanager
    async def step(self) -> AsyncIterator[Session | None]:
        """The session while all is well. What goes wrong is kept, and ends the visit to this member."""
        try:
            async with asyncio.timeout(_SECONDS):
                yield self._session if self.usable else None
        except (UnreachableError, TimeoutError):
            self.reachable = False
        except (ApiError, ForeignObjectError) as error:
            self.problems.append(as_problem(error, self.cluster, self.owner))


async def owned_objects(session: Session, owner: Owner, kinds: Sequence[Kind]) -> tuple[list[Object], list[Object]]:
    """The owner's objects and its pods in a member."""
    *owned, pods = await asyncio.gather(
        *(session.list(kind, owner.namespace, selector=owner.selector) for kind in (*kinds, POD))
    )
    return [found for some in owned for found in some], list(pods)


async def namespace_is_gone(session: Session, namespace: str) -> bool:
    """Rights in a namespace go with it, and so does everything else in it."""
    try:
        return await session.get(NAMESPACE, namespace) is None
    except (ApiError, UnreachableError):
        return False


def as_problem(error: ApiError | ForeignObjectError, cluster: str, owner: Owner) -> Problem:
    """The error for a condition."""
    if isinstance(error, ForeignObjectError):
        return Problem(
            "ForeignObject",
            f"{error} on {cluster} exists and is not of {owner.kind} {owner.instance}; it is left as it is; "
            f"remove it, or choose another name for the {owner.kind}",
        )
    if isinstance(error, ConflictError):
        return Problem("FieldConflict", f"on {cluster}: {error.message}; it is tried again", needs_help=False)
    if error.status == 403:
        return Problem("Forbidden", f"on {cluster}: {error.message}; {owner.remedy}")
    if error.status == 404:
        return Problem("NamespaceNotFound", f"namespace {owner.namespace} does not exist on {cluster}; {owner.remedy}")
    if error.status in {400, 422}:
        return Problem("Refused", f"{cluster} refuses an object: {error.message}")
    return Problem("ApiError", f"{cluster} answers {error.status}: {error.message}", needs_help=False)
