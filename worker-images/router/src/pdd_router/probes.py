"""Routes that both modes have."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


async def healthz(http: web.Request) -> web.Response:
    del http
    return web.Response(text="ok\n")


async def metrics(http: web.Request) -> web.Response:
    del http
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def readiness(missing: list[str]) -> web.Response:
    if missing:
        return web.Response(status=503, text=f"waiting for {', '.join(missing)}\n")
    return web.Response(text="ready\n")


def routes() -> list[web.RouteDef]:
    return [web.get("/healthz", healthz), web.get("/metrics", metrics)]
