"""Watches of a member that only wake loops: what is true is read afresh by whoever is woken."""

import asyncio
import logging
from collections.abc import Callable

from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import Kind
from pdd_operator.clusters.session import Object, Session

logger = logging.getLogger(__name__)

_SHORTEST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


async def wake_on_change(
    session: Session, kind: Kind, namespace: str, *, selector: str, wake: Callable[[Object | None], None]
) -> None:
    """Call `wake` with each changed object, and with None after a gap; runs until it is cancelled."""
    pause = _SHORTEST_PAUSE
    while True:
        try:
            async for found in session.watch(kind, namespace, selector=selector):
                pause = _SHORTEST_PAUSE
                wake(found)
        except (UnreachableError, ApiError) as error:
            logger.debug("watch of %s in %s of %s ended: %s", kind.plural, namespace, session.name, error)
            pause = min(pause * 2, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
        wake(None)
