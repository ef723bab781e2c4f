"""The front router's HTTP surface and what runs beside it."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time
from uuid import uuid4

import structlog
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from pdd_router import probes
from pdd_router.config import FrontConfig
from pdd_router.config_watch import ConfigWatch
from pdd_router.engines.client import Engine
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.learning import keep_learning
from pdd_router.engines.pool import EnginePool
from pdd_router.engines.renderer import Renderers
from pdd_router.errors import ApiError
from pdd_router.front.outbound import Outbound
from pdd_router.front.pipelines import Pipelines
from pdd_router.front.record import Record
from pdd_router.front.requests import Route, parse
from pdd_router.front.serve import Server
from pdd_router.line.sites import Sites
from pdd_router.sessions import line_session, local_session
from pdd_router.tasks import running

_LOG = structlog.get_logger(__name__)

# A 100K-token prompt is half a megabyte of text; what is larger is no prompt.
_MAX_BODY_BYTES = 8 * 1024 * 1024


class Front:
    """Owns the parts of a front router; `app()` is their HTTP surface."""

    def __init__(self, watch: ConfigWatch[FrontConfig], local: ClientSession, line: ClientSession):
        config = watch.current
        self._watch = watch
        self._prefill = EnginePool("prefill", lambda e: Engine(local, e.name, e.url))
        self._relay = EnginePool("relay-decode", lambda e: Engine(local, e.name, e.url))
        self._renderers = Renderers(local)
        self._sites = Sites(line)
        self._sites.update(config.sites)
        watch.on_change(lambda changed: self._sites.update(changed.sites))
        self._server = Server(self._renderers, Pipelines(self._prefill, self._relay), self._sites)
        self.discovery = Discovery(
            config.namespace,
            {
                config.services.prefill: self._prefill.update,
                config.services.relay_decode: self._relay.update,
                config.services.renderer: self._renderers.update,
            },
        )

    def background(self) -> list[Awaitable[None]]:
        return [
            self._watch.run(),
            self.discovery.run(),
            keep_learning([self._prefill, self._relay]),
            self._sites.ping_all(),
        ]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_errors_in_api_format])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._answering("chat/completions")),
                web.post("/v1/completions", self._answering("completions")),
                web.get("/v1/models", self._models),
                web.get("/readyz", self._readyz),
                web.get("/telemetry", self._telemetry),
                *probes.routes(),
            ]
        )
        return app

    def _answering(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(http: web.Request) -> web.StreamResponse:
            config = self._watch.current
            record = Record(request_id=_request_id(http), route=route, stream=False)
            out = Outbound(http, record)
            status, outcome = 499, "client left"
            try:
                request = parse(
                    route,
                    await http.read(),
                    http.headers,
                    overrides_allowed=config.routing.request_overrides == "Allowed",
                )
                record.stream = request.stream
                response = await self._server.answer(out, request, config, record)
                status = response.status
                outcome = "ok" if status == 200 else "refused" if status < 500 else "failed"
                return response
            except ConnectionError:
                raise  # nobody is there to be told
            except Exception as error:
                failure = _told(error, record.request_id)
                status, outcome = failure.status, "refused" if failure.status < 500 else "failed"
                record.trouble.append(failure.message)
                return await out.fail(failure)
            finally:
                record.close(status=status, outcome=outcome)

        return handler

    async def _models(self, http: web.Request) -> web.Response:
        del http
        config = self._watch.current
        limits = [engine.facts.max_model_len for engine in self._prefill.usable]
        card = {
            "id": config.model,
            "object": "model",
            "created": int(time()),
            "owned_by": "pdd",
            "root": config.model,
            "parent": None,
            "max_model_len": limits[0] if limits else None,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _readyz(self, http: web.Request) -> web.Response:
        del http
        needed = {
            "a prefill engine": self._prefill.usable,
            "a renderer": self._renderers.ready,
            "a main-decode site that answers": self._sites.reachable,
        }
        return probes.readiness([what for what, there in needed.items() if not there])

    async def _telemetry(self, http: web.Request) -> web.Response:
        del http
        return web.json_response({"version": 1, "links": self._sites.telemetry()})


def _told(error: Exception, request_id: str) -> ApiError:
    """What the client hears: our own errors as they are, aiohttp's refusals and bugs in the same format."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, web.HTTPException):
        return ApiError(error.status, error.reason)
    _LOG.exception("request failed by a bug", request_id=request_id)
    return ApiError(500, f"internal error, see the router's log for {request_id}", kind="InternalServerError")


def _request_id(http: web.Request) -> str:
    """The client's own, where it can stand in a header, a log and an engine's request id; else a new one."""
    wish = http.headers.get("X-Request-Id", "")
    return wish if re.fullmatch(r"[\w.:-]{1,128}", wish, re.ASCII) else uuid4().hex


@web.middleware
async def _errors_in_api_format(request: web.Request, handler: Handler) -> web.StreamResponse:
    """aiohttp's own refusals (no such route, body too large) in the format that clients read."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        if refusal.status < 400:
            raise
        kind = "NotFoundError" if refusal.status == 404 else "BadRequestError"
        what = f"{request.method} {request.path} is not served here" if refusal.status in (404, 405) else refusal.reason
        return web.json_response(ApiError(refusal.status, what, kind=kind).body(), status=refusal.status)


@asynccontextmanager
async def serving(watch: ConfigWatch[FrontConfig]) -> AsyncIterator[web.Application]:
    """The app with everything behind it running, until the context ends."""
    async with local_session() as local, line_session() as line:
        front = Front(watch, local, line)
        async with running(front.background()):
            yield front.app()
