"""Asks every second whether the engines still turn, and puts those aside that do not."""

import asyncio
from collections.abc import Sequence

import structlog

from pdd_router import metrics
from pdd_router.engines.client import Engine
from pdd_router.engines.pool import EnginePool

_LOG = structlog.get_logger(__name__)
_EVERY_SECONDS = 1.0


async def keep_watch(pools: Sequence[EnginePool]) -> None:
    """Until cancelled. A check that takes long holds up no other engine's."""
    running: dict[Engine, asyncio.Task[None]] = {}
    try:
        while True:
            for pool in pools:
                for engine in pool.known:
                    if engine not in running or running[engine].done():
                        running[engine] = asyncio.create_task(_check(pool, engine))
            running = {engine: task for engine, task in running.items() if not task.done()}
            await asyncio.sleep(_EVERY_SECONDS)
    finally:
        for task in running.values():
            task.cancel()


async def _check(pool: EnginePool, engine: Engine) -> None:
    trouble = await engine.check()
    if trouble is not None and not engine.aside:
        _LOG.warning("engine put aside", role=pool.role, engine=engine.name, why=trouble)
        metrics.PUT_ASIDE.labels(pool.role).inc()
        engine.put_aside()
    elif trouble is None and engine.aside:
        _LOG.info("engine answers again", role=pool.role, engine=engine.name)
        engine.take_back()
