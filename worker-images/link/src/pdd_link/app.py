"""The agent's HTTP surface, for its own cluster: no caller can change anything by it."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pdd_link.agent import Agent
from pdd_link.document import measurements
from pdd_link.gauges import refresh


def application(agent: Agent) -> web.Application:
    async def healthz(http: web.Request) -> web.Response:
        del http
        return web.Response(text="ok\n")

    async def metrics(http: web.Request) -> web.Response:
        del http
        refresh(agent)
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def measured(http: web.Request) -> web.Response:
        del http
        return web.json_response(text=measurements(agent).model_dump_json(by_alias=True))

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            # It measures from its first moment, and a bad line is no reason to be taken out of a Service.
            web.get("/readyz", healthz),
            web.get("/metrics", metrics),
            web.get("/v1/measurements", measured),
        ]
    )
    return app
