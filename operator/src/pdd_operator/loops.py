"""One loop an object: it visits its object when woken, and at the latest when the last visit said.

kopf's own daemons are not used for this. After a restart kopf starts none for an object that is already being
deleted and lets go of its finalizer, so what runs in the members would be left behind. Events only wake
loops here, and each visit reads the object afresh; kopf itself writes nothing to any object.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pdd_operator.clusters.errors import ApiError, ConflictError, UnreachableError

logger = logging.getLogger(__name__)

_PAUSE: Final = 1.0
"""Between two visits, so that a burst of events is one visit."""
_VISIT_SECONDS: Final = 120.0
_LONGEST_BACKOFF: Final = 60.0
_OVERDUE_SECONDS: Final = 300.0


class Key(NamedTuple):
    """An object of the hub."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


Visit = Callable[[Key], Awaitable[float | None]]
"""Reconciles an object; returns when to come again in seconds, or None when the object is gone."""


class _Loop:
    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.seen = asyncio.get_running_loop().time()
        self.task: asyncio.Task[None] | None = None


class Loops:
    """The loops of all objects."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._loops: dict[Key, _Loop] = {}

    def start(self, key: Key) -> None:
        """Wake the object's loop, which is started where there is none."""
        loop = self._loops.get(key)
        if loop is None:
            loop = self._loops[key] = _Loop()
            loop.task = asyncio.create_task(self._run(key, loop), name=str(key))
        loop.woken.set()

    def wake(self, kind: str, name: str | None = None, namespace: str | None = None) -> None:
        """Wake the running loops of a kind that match."""
        for key, loop in self._loops.items():
            if key.kind == kind and name in {None, key.name} and namespace in {None, key.namespace}:
                loop.woken.set()

    def overdue(self) -> list[str]:
        """Objects whose loop has not come round for far too long."""
        limit = asyncio.get_running_loop().time() - _OVERDUE_SECONDS
        return [str(key) for key, loop in self._loops.items() if loop.seen < limit]

    async def close(self) -> None:
        """Stop all loops; what was being written is finished by the next operator."""
        tasks = [loop.task for loop in self._loops.values() if loop.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops.clear()

    async def _run(self, key: Key, loop: _Loop) -> None:
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            loop.woken.clear()
            try:
                async with asyncio.timeout(_VISIT_SECONDS):
                    again = await self._visit(key)
                failures = 0
            except ConflictError as error:
                again = _PAUSE  # what was read is old by now
                logger.debug("%s changed meanwhile: %s", key, error)
            except (UnreachableError, ApiError, TimeoutError) as error:
                failures += 1
                again = min(2.0**failures, _LONGEST_BACKOFF)
                logger.warning("%s: %s; the next visit is in %g s", key, error or "took too long", again)
            except Exception:
                failures += 1
                again = min(2.0**failures, _LONGEST_BACKOFF)
                logger.exception("%s: unexpected; the next visit is in %g s", key, again)
            loop.seen = clock()
            if again is None and not loop.woken.is_set():
                del self._loops[key]
                return
            await asyncio.sleep(_PAUSE)
            try:
                async with asyncio.timeout(again):
                    await loop.woken.wait()
            except TimeoutError:
                pass
