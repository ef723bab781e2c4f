"""The main router's HTTP surface. Every call is stateless; a caller that leaves aborts what it started."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from time import monotonic
from typing import Any

import orjson
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from pdd_router import probes, sse
from pdd_router.config import MainConfig
from pdd_router.config_watch import ConfigWatch
from pdd_router.engines.client import Engine
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.learning import keep_learning
from pdd_router.engines.pool import EnginePool
from pdd_router.errors import ApiError
from pdd_router.main.pull import Pulls, pulled_headers
from pdd_router.sessions import local_session
from pdd_router.tasks import running

# Ids of the longest prompts as JSON, with room.
_MAX_BODY_BYTES = 32 * 1024 * 1024


class Main:
    """Owns the parts of a main router; `app()` is their HTTP surface."""

    def __init__(self, watch: ConfigWatch[MainConfig], local: ClientSession):
        config = watch.current
        self._watch = watch
        self._engines = EnginePool("main-decode", lambda e: Engine(local, e.name, e.url))
        self._pulls = Pulls()
        self._discovery = Discovery(config.namespace, {config.services.main_decode: self._engines.update})

    def background(self) -> list[Awaitable[None]]:
        return [self._watch.run(), self._discovery.run(), keep_learning([self._engines])]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_errors_as_json])
        app.add_routes(
            [
                web.get("/pdd/v1/ping", self._ping),
                web.post("/pdd/v1/pull", self._pull),
                web.post("/pdd/v1/generate", self._generate),
                web.post("/pdd/v1/answer/{route:chat/completions|completions}", self._answer),
                web.get("/readyz", self._readyz),
                *probes.routes(),
            ]
        )
        return app

    async def _ping(self, http: web.Request) -> web.Response:
        del http
        # The clock lets the front say in this router's time until when a lease may be used.
        return web.json_response(
            {"site": self._watch.current.site, "engines": len(self._engines.usable), "clock": monotonic()}
        )

    async def _pull(self, http: web.Request) -> web.Response:
        asked = orjson.loads(await http.read())
        engine = self._engines.take(asked["prompt"]["token_ids"])
        pulled = await self._pulls.pull(engine, asked["prompt"], asked["request_id"])
        return web.json_response({"engine": engine.name, **asdict(pulled)})

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        body = orjson.loads(await http.read())
        tokens = self._engines.named(body["engine"]).stream(
            request_id=body["request_id"],
            token_ids=body["token_ids"],
            sampling_params=body["sampling_params"],
            cache_salt=body["cache_salt"],
        )
        response: web.StreamResponse | None = None
        try:
            async with aclosing(tokens):
                async for delta in tokens:
                    response = response or await _open(http)
                    await response.write(sse.event(orjson.dumps(delta)))
        except ApiError as error:
            if response is None:
                raise
            await response.write(sse.event(orjson.dumps(error.body())))
        response = response or await _open(http)
        await response.write(sse.DONE)
        await response.write_eof()
        return response

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        """Pulls, then the engine's own endpoint: one call over the line for both saves a round trip."""
        asked: dict[str, Any] = orjson.loads(await http.read())
        request_id, prompts = asked["request_id"], asked["prompts"]
        engine = self._engines.take(prompts[0]["token_ids"])
        async with asyncio.TaskGroup() as group:
            pulls = [
                group.create_task(self._pulls.pull(engine, prompt, f"{request_id}-{n}"))
                for n, prompt in enumerate(prompts)
            ]
        pulled = [task.result() for task in pulls]
        path = f"/v1/{http.match_info['route']}"
        async with engine.forward(path, request_id, asked["body"]) as answer:
            headers = pulled_headers(engine.name, pulled) | {"Content-Type": answer.content_type}
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(http)
            try:
                async for chunk in answer.chunks:
                    await response.write(chunk)
            except ApiError:
                # The status is out. A connection that breaks is the one way left to say that this is not all.
                if http.transport is not None:
                    http.transport.abort()
                raise
            await response.write_eof()
        return response

    async def _readyz(self, http: web.Request) -> web.Response:
        del http
        return probes.readiness([] if self._engines.usable else ["a main-decode engine"])


async def _open(http: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=sse.HEADERS)
    await response.prepare(http)
    return response


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ExceptionGroup as group:  # of a batch's pulls; the first is as good as any
        failures, others = group.split(ApiError)
        if failures is None or others is not None:
            raise
        return _as_json(next(error for error in failures.exceptions if isinstance(error, ApiError)))
    except ApiError as error:
        return _as_json(error)


def _as_json(error: ApiError) -> web.Response:
    return web.Response(body=orjson.dumps(error.body()), status=error.status, content_type="application/json")


@asynccontextmanager
async def serving(watch: ConfigWatch[MainConfig]) -> AsyncIterator[web.Application]:
    """The app with everything behind it running, until the context ends."""
    async with local_session() as local:
        main = Main(watch, local)
        async with running(main.background()):
            yield main.app()
