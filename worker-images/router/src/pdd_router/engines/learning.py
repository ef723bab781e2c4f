"""Asks engines that are ready, but not known yet, for their facts."""

import asyncio
from collections.abc import Sequence

import structlog

from pdd_router.engines.pool import EnginePool
from pdd_router.errors import ApiError

_LOG = structlog.get_logger(__name__)
_EVERY_SECONDS = 0.5


async def keep_learning(pools: Sequence[EnginePool]) -> None:
    """Until cancelled."""
    while True:
        for pool in pools:
            for engine in pool.unknown:
                try:
                    await engine.learn()
                except ApiError as error:
                    _LOG.warning("engine tells no facts", role=pool.role, engine=engine.name, error=error.message)
                else:
                    _LOG.info("engine", role=pool.role, engine=engine.name, facts=engine.facts)
        await asyncio.sleep(_EVERY_SECONDS)
