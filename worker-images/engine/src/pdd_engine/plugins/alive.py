"""`GET /pdd/v1/alive`: answers after a round trip through the engine core.

vLLM's `/health` asks whether the core's process is there. A core that hangs, or is stopped, is there: its API server
takes requests and says that all is well. The round trip goes through the core's own loop, between two of its steps, and
waits for the step that runs but for no transfer. Nothing is answered while the core does not: how long is too long,
the caller decides. `clock` is this host's monotonic one, in seconds, when the question came.
"""

import asyncio
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import State

from pdd_engine.plugins.errors import error_response


class AlivePlugin:
    """A vLLM endpoint plugin of every engine."""

    name = "pdd_alive"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        from vllm.entrypoints.serve.utils.api_utils import with_cancellation  # noqa: PLC0415

        # A caller that went away waits no longer.
        app.add_api_route("/pdd/v1/alive", with_cancellation(_answer), methods=["GET"], response_model=None)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        state.pdd_engine_client = engine_client
        state.pdd_round_trips = RoundTrips(engine_client.is_sleeping)


class RoundTrips:
    """Calls of the engine core, one at a time: who asks while one is under way waits for that one.

    So a core that hangs has one call waiting for it, not one for each time that somebody has asked.
    """

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._call = call
        self._under_way: asyncio.Future[object] | None = None

    async def one(self) -> None:
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(self._call())
            # Told to those who wait; that nobody does any more is no error.
            self._under_way.add_done_callback(lambda call: call.cancelled() or call.exception())
        await asyncio.shield(self._under_way)


async def _answer(raw_request: Request) -> JSONResponse:
    state, clock = raw_request.app.state, time.monotonic()
    try:
        await state.pdd_round_trips.one()
    except Exception as error:
        # A core that ends takes no calls any more, and says so: it is alive until its work is done.
        if state.pdd_engine_client.errored:
            return error_response(503, f"the engine core is dead: {error}")
    return JSONResponse({"clock": clock})
