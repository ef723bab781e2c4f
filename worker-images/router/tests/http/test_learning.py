"""Engines that tell no facts, or nonsense, are not used, and do not stop the router."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from pdd_router.engines.client import Engine
from pdd_router.engines.learning import keep_learning
from pdd_router.engines.pool import Endpoint, EnginePool
from pdd_router.errors import UnavailableError
from pdd_router.sessions import local_session


@pytest.mark.parametrize("told", ["{}", "not JSON", '{"role": 1}'])
async def test_nonsense_is_survived(serve: Any, told: str) -> None:
    asked = 0

    async def facts(http: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=told)

    app = web.Application()
    app.add_routes([web.get("/pdd/v1/facts", facts)])
    address = await serve(app)
    async with local_session() as session:
        pool = EnginePool("prefill", lambda e: Engine(session, e.name, e.url))
        pool.update([Endpoint("p-0", f"http://{address}")])
        task = asyncio.create_task(keep_learning([pool]))
        async with asyncio.timeout(30):
            while asked < 2 and not task.done():
                await asyncio.sleep(0.02)
        assert not task.done()
        with pytest.raises(UnavailableError, match="no prefill engine is ready"):
            pool.take([1])
        task.cancel()
