"""The front router's HTTP surface and what runs beside it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time

import orjson
import structlog
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler, Middleware

from pdd_router import metrics, probes, timeouts
from pdd_router.config import FrontConfig
from pdd_router.config_watch import ConfigWatch
from pdd_router.engines.client import Engine
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.learning import keep_learning
from pdd_router.engines.pool import EnginePool
from pdd_router.engines.renderers import Renderers
from pdd_router.engines.watch import keep_watch
from pdd_router.errors import ApiError, OverloadedError
from pdd_router.front.ask import asked
from pdd_router.front.compatible import Compatibility
from pdd_router.front.keys import ApiKeys
from pdd_router.front.outbound import Outbound
from pdd_router.front.pipelines import Pipelines
from pdd_router.front.record import Record
from pdd_router.front.serve import Server
from pdd_router.line.sites import Sites
from pdd_router.origin import REQUEST_ID, request_id
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
        self._keys = ApiKeys(config.api_keys_dir)
        watch.on_change(self._follow)
        self._server = Server(self._renderers, Pipelines(self._prefill, self._relay, self._sites))
        self._compatibility = Compatibility(config.site)
        self._in_flight = 0
        self.discovery = Discovery(
            config.namespace,
            {
                config.services.prefill: self._prefill.update,
                config.services.relay_decode: self._relay.update,
                config.services.renderer: self._renderers.update,
            },
        )

    def _follow(self, changed: FrontConfig) -> None:
        self._sites.update(changed.sites)
        self._keys.follow(changed.api_keys_dir)

    def background(self) -> list[Awaitable[None]]:
        pools = [self._prefill, self._relay]
        return [
            self._watch.run(),
            self.discovery.run(),
            keep_learning(pools),
            keep_watch(pools),
            self._sites.ping_all(),
            self._keys.keep_reading(),
        ]

    def close(self) -> None:
        self._renderers.close()

    def app(self) -> web.Application:
        app = web.Application(
            client_max_size=_MAX_BODY_BYTES, middlewares=[_errors_in_api_format, _keys_first(self._keys)]
        )
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._answering("chat/completions")),
                web.post("/v1/completions", self._answering("completions")),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model}", self._model),
                web.get("/readyz", self._readyz),
                web.get("/telemetry", self._telemetry),
                *probes.routes(),
            ]
        )
        return app

    def _answering(self, route: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(http: web.Request) -> web.StreamResponse:
            record = Record(request_id=request_id(http.headers), route=route)
            out = Outbound(http, record)
            status, outcome = 499, "client left"
            try:
                response = await self._answer(http, route, out, record)
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

    async def _answer(self, http: web.Request, route: str, out: Outbound, record: Record) -> web.StreamResponse:
        routing = self._watch.current.routing
        if self._in_flight >= routing.max_requests:
            raise OverloadedError(f"this router works on {self._in_flight} requests, its maximum; try again later")
        self._in_flight += 1
        try:
            ask = asked(http.headers, record.request_id, routing)
            # vLLM refuses what does not say that it is JSON: a browser's form cannot be made to ask.
            said = http.headers.get("Content-Type", "")
            return await self._server.answer(out, f"/v1/{route}", await _body(http), ask, record, content_type=said)
        finally:
            self._in_flight -= 1

    async def _models(self, http: web.Request) -> web.Response:
        del http
        return web.json_response({"object": "list", "data": [self._card()]})

    async def _model(self, http: web.Request) -> web.Response:
        if http.match_info["model"] == self._watch.current.model:
            return web.json_response(self._card())
        what = f"The model `{http.match_info['model']}` does not exist."
        return web.json_response(ApiError(404, what, kind="NotFoundError", param="model").body(), status=404)

    def _card(self) -> dict[str, object]:
        model = self._watch.current.model
        limits = [engine.facts.max_model_len for engine in self._prefill.usable]
        return {
            "id": model,
            "object": "model",
            "created": int(time()),
            "owned_by": "pdd",
            "root": model,
            "parent": None,
            "max_model_len": limits[0] if limits else None,
        }

    async def _readyz(self, http: web.Request) -> web.Response:
        del http
        needed = {
            "a prefill engine": self._prefill.usable,
            "a renderer": self._renderers.open,
            "a main-decode site that answers": self._sites.reachable,
        }
        return probes.readiness([what for what, there in needed.items() if not there])

    async def _telemetry(self, http: web.Request) -> web.Response:
        del http
        compatibility = self._compatibility.report(
            self._prefill.known, self._relay.known, self._renderers.open, self._sites.engines
        )
        return web.json_response({"version": 1, "links": self._sites.telemetry(), "compatibility": compatibility})


def _keys_first(keys: ApiKeys) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/v1/") or keys.allows(request.headers.get("Authorization")):
            return await handler(request)
        metrics.UNAUTHORIZED.inc()
        what = "a valid API key is needed: send it as `Authorization: Bearer <key>`"
        refusal = ApiError(401, what, kind="AuthenticationError")
        headers = {"WWW-Authenticate": "Bearer", REQUEST_ID: request_id(request.headers)}
        body = orjson.dumps(refusal.body())
        return web.Response(body=body, status=401, headers=headers, content_type="application/json")

    return check


async def _body(http: web.Request) -> bytes:
    if http.content_length is not None and http.content_length > _MAX_BODY_BYTES:
        raise ApiError(413, f"the body has {http.content_length} bytes: at most {_MAX_BODY_BYTES} are taken")
    try:
        async with asyncio.timeout(timeouts.CLIENT_SECONDS):
            return await http.read()
    except TimeoutError:
        what = f"the body did not come within {timeouts.CLIENT_SECONDS:.0f} s"
        raise ApiError(408, what, kind="RequestTimeoutError") from None
    except web.RequestPayloadError:
        raise ApiError(400, "the body is not what its Content-Encoding or Transfer-Encoding says") from None


def _told(error: Exception, request_id: str) -> ApiError:
    """What the client hears: our own errors as they are, aiohttp's refusals and bugs in the same format."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, web.HTTPException):
        return ApiError(error.status, error.reason)
    _LOG.exception("request failed by a bug", request_id=request_id)
    return ApiError(500, f"internal error, see the router's log for {request_id}", kind="InternalServerError")


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
        headers = {REQUEST_ID: request_id(request.headers)}
        if "Allow" in refusal.headers:
            headers["Allow"] = refusal.headers["Allow"]
        body = ApiError(refusal.status, what, kind=kind).body()
        return web.json_response(body, status=refusal.status, headers=headers)


@asynccontextmanager
async def serving(watch: ConfigWatch[FrontConfig]) -> AsyncIterator[web.Application]:
    """The app with everything behind it running, until the context ends."""
    async with local_session() as local, line_session() as line:
        front = Front(watch, local, line)
        try:
            async with running(front.background()):
                yield front.app()
        finally:
            front.close()
