"""The main router's HTTP surface. Every call is stateless; a caller that leaves aborts what it started."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
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
from pdd_router.engines.client import Engine, Work
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.learning import keep_learning
from pdd_router.engines.pool import EnginePool
from pdd_router.engines.watch import keep_watch
from pdd_router.errors import ApiError
from pdd_router.main.admission import Admission
from pdd_router.main.pull import Pull, Pulls
from pdd_router.origin import passed_on
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
        self._admission = Admission()
        self._pulls = Pulls()
        self._discovery = Discovery(config.namespace, {config.services.main_decode: self._engines.update})

    def background(self) -> list[Awaitable[None]]:
        pools = [self._engines]
        return [self._watch.run(), self._discovery.run(), keep_learning(pools), keep_watch(pools)]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_errors_as_json])
        app.add_routes(
            [
                web.get("/pdd/v1/ping", self._ping),
                web.post("/pdd/v1/pull", self._pull),
                web.post("/pdd/v1/generate", self._generate),
                web.post("/pdd/v1/forget", self._forget),
                web.get("/readyz", self._readyz),
                *probes.routes(),
            ]
        )
        return app

    async def _ping(self, http: web.Request) -> web.Response:
        del http
        engines = [{"name": engine.name, "facts": engine.facts.model_dump()} for engine in self._engines.usable]
        # The clock lets the front say in this router's time until when a lease may be used.
        body = {"site": self._watch.current.site, "engines": engines, "clock": monotonic()}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def _pull(self, http: web.Request) -> web.Response:
        asked = await _asked(http)
        work = _work(asked)
        engine = self._engines.take(work.token_ids, reads=asked["reads"])
        async with self._admission.admitted(engine, len(work.token_ids)):
            pulled = await self._pulls.pull(engine, work, asked["lease"], passed_on(http.headers))
        return web.json_response(asdict(pulled))

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        """Goes on from KV that an engine holds (`engine`), or pulls it first (`lease`): both in one call over the
        line, because two would cost it another round trip."""
        asked = await _asked(http)
        work, headers = _work(asked), passed_on(http.headers)
        lease = asked.get("lease")
        if lease is None:
            engine = self._engines.named(asked["engine"])
        else:
            engine = self._engines.take(work.token_ids, reads=asked["reads"])
        async with self._admission.admitted(engine, len(work.token_ids), has_kv=lease is None):
            pulled = None if lease is None else await self._pulls.pull(engine, work, lease, headers)
            return await _stream(http, engine, work, headers, pulled)

    async def _forget(self, http: web.Request) -> web.Response:
        """Leases whose client left. Only what every engine has not seen is unread: which one was asked is forgotten."""
        request_ids = (await _json(http)).get("request_ids")
        if not isinstance(request_ids, list):
            raise ApiError(400, "`request_ids` must be a list", param="request_ids")
        answers = await asyncio.gather(*(engine.forget(request_ids) for engine in self._engines.known))
        unseen = set(request_ids).intersection(*answers) if answers else set()
        return web.json_response({"unseen": sorted(unseen)})

    async def _readyz(self, http: web.Request) -> web.Response:
        del http
        return probes.readiness([] if self._engines.usable else ["a main-decode engine"])


async def _stream(
    http: web.Request, engine: Engine, work: Work, headers: Mapping[str, str], pulled: Pull | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers=sse.HEADERS)
    if pulled is not None:
        await response.prepare(http)
        await response.write(sse.event(orjson.dumps({"pulled": pulled})))
    try:
        async with aclosing(engine.stream(work, headers=headers)) as deltas:
            async for delta in deltas:
                if not response.prepared:
                    await response.prepare(http)
                await response.write(sse.event(orjson.dumps(delta)))
    except ApiError as error:
        if not response.prepared:
            raise
        await response.write(sse.event(orjson.dumps(error.body())))
    if not response.prepared:
        await response.prepare(http)
    await response.write(sse.DONE)
    await response.write_eof()
    return response


async def _json(http: web.Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(body).__name__}")
    return body


async def _asked(http: web.Request) -> dict[str, Any]:
    """Raises ApiError 400 for what a front router would not send."""
    asked = await _json(http)
    if not isinstance(asked.get("work"), dict):
        raise ApiError(400, "the body must be an object with `work`; is the front router of another version?")
    if not ("engine" in asked or {"lease", "reads"} <= asked.keys()):
        raise ApiError(400, "the body must have `engine`, or `lease` and `reads`")
    return asked


def _work(asked: Mapping[str, Any]) -> Work:
    try:
        return Work(**asked["work"])
    except TypeError as error:
        raise ApiError(400, f"`work`: {error}; is the front router of another version?") from None


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        body = orjson.dumps(error.body())
        return web.Response(body=body, status=error.status, headers=error.headers, content_type="application/json")


@asynccontextmanager
async def serving(watch: ConfigWatch[MainConfig]) -> AsyncIterator[web.Application]:
    """The app with everything behind it running, until the context ends."""
    async with local_session() as local:
        main = Main(watch, local)
        async with running(main.background()):
            yield main.app()
