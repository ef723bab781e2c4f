"""Discovery against an API server that misbehaves: the last known endpoints stay, and the watch comes back."""

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from pdd_router.engines import discovery
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.pool import Endpoint

SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "addressType": "IPv4",
    "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
    "ports": [{"name": "http", "port": 8000}],
    "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"name": "p-1"}}],
}


@pytest.mark.parametrize("trouble", ["reset", "half a line", "an error object", "not JSON"])
async def test_a_watch_that_breaks_is_begun_again(monkeypatch: pytest.MonkeyPatch, serve: Any, trouble: str) -> None:
    lists, seen = 0, []

    async def endpoint_slices(http: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in http.query:
            lists += 1
            meta = {"resourceVersion": str(lists)}
            return web.json_response({"kind": "EndpointSliceList", "metadata": meta, "items": [SLICE]})
        response = web.StreamResponse()
        await response.prepare(http)
        if trouble == "half a line":
            await response.write(orjson.dumps({"type": "MODIFIED", "object": SLICE})[:40])
        elif trouble == "an error object":
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await response.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
        elif trouble == "not JSON":
            await response.write(b"<html>\n")
        if trouble == "reset":
            await response.write(b"{")
            assert http.transport
            http.transport.abort()
        return response

    app = web.Application()
    app.add_routes([web.get("/apis/discovery.k8s.io/v1/namespaces/n/endpointslices", endpoint_slices)])
    monkeypatch.setattr(discovery, "_RETRY_SECONDS", 0.05)
    address = await serve(app)

    def api_server() -> None:
        Configuration.set_default(Configuration(host=f"http://{address}"))

    monkeypatch.setattr(discovery, "load_incluster_config", api_server)
    updates: dict[str, Any] = {"s": seen.append}
    task = asyncio.create_task(Discovery("n", updates).run())
    try:
        async with asyncio.timeout(30):
            while lists < 3 and not task.done():
                await asyncio.sleep(0.02)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert {tuple(update) for update in seen} == {(Endpoint("p-1", "http://10.0.0.1:8000"),)}
