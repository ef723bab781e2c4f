"""Two routers as they are, joined by loopback, over simulated engines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from pdd_e2e.simulated.engine import SimulatedEngine
from pdd_e2e.simulated.renderer import SimulatedRenderer
from pdd_router.config import FrontConfig, FrontServices, MainConfig, MainServices, Routing, Site
from pdd_router.config_watch import ConfigWatch
from pdd_router.engines.pool import Endpoint
from pdd_router.front.app import Front
from pdd_router.main.app import Main
from pdd_router.sessions import line_session, local_session
from pdd_router.tasks import running

Serve = Callable[[web.Application], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves an application until the test ends, and returns its host and port."""
    async with AsyncExitStack() as stack:

        async def begin(app: web.Application) -> str:
            runner = web.AppRunner(app, handler_cancellation=True)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            return f"127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]

        yield begin


@dataclass
class TwoSites:
    """The running whole. `url` is the front's."""

    prefill: SimulatedEngine
    relay: SimulatedEngine
    main: SimulatedEngine
    renderer: SimulatedRenderer
    stack: AsyncExitStack
    url: str = ""
    front: Any = None
    client: ClientSession = field(default_factory=ClientSession)

    async def complete(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        async with self.client.post(self.url + "/v1/completions", json=body, headers=headers) as response:
            return response.status, await response.json()


Start = Callable[..., Awaitable[TwoSites]]


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> AsyncIterator[Start]:
    """Starts the two sites; keywords change the engines: `relay={"dies_after_tokens": 2}`."""

    async def nothing_to_discover(self: Any) -> None:
        await asyncio.Event().wait()

    # The endpoints are given by hand: discovery against a real API server is the e2e suite's.
    monkeypatch.setattr("pdd_router.engines.discovery.Discovery.run", nothing_to_discover)
    async with AsyncExitStack() as stack:

        async def begin(*, tolerated_wait_millis: int = 0, overrides: str = "Allowed", **changes: Any) -> TwoSites:
            sites = TwoSites(
                SimulatedEngine("prefill", **changes.get("prefill", {})),
                SimulatedEngine("relay-decode", **changes.get("relay", {})),
                SimulatedEngine("main-decode", **changes.get("main", {})),
                SimulatedRenderer(**changes.get("renderer", {})),
                stack,
            )
            stack.push_async_callback(sites.client.close)
            where = {name: "http://" + await serve(getattr(sites, name).app())
                     for name in ("prefill", "relay", "main", "renderer")}  # fmt: skip
            local = await stack.enter_async_context(local_session())
            line = await stack.enter_async_context(line_session())
            common = {"deployment": "d", "namespace": "n", "model": "m"}
            main_config = MainConfig(mode="main", site="site-b", services=MainServices(main_decode="md"), **common)
            main = Main(ConfigWatch(Path("unused"), main_config), local)
            main._engines.update([Endpoint("md-0", where["main"])])
            await stack.enter_async_context(running(main.background()))
            address = await serve(main.app())
            front_config = FrontConfig(
                mode="front",
                site="site-a",
                services=FrontServices(prefill="p", relay_decode="r", renderer="t"),
                sites=[Site(name="site-b", link="a-b", addresses=[address], bandwidth_bits_per_second=10**9)],
                routing=Routing(
                    tolerated_wait_millis=tolerated_wait_millis,
                    request_overrides=overrides,  # type: ignore[arg-type]
                    max_requests=changes.get("max_requests", 256),
                ),
                api_keys_dir=changes.get("api_keys_dir"),
                **common,
            )
            front = Front(ConfigWatch(Path("unused"), front_config), local, line)
            sites.front = front
            front._prefill.update([Endpoint("p-0", where["prefill"])])
            front._relay.update([Endpoint("r-0", where["relay"])])
            front._renderers.update([Endpoint("t-0", where["renderer"])])
            stack.callback(front.close)
            await stack.enter_async_context(running(front.background()))
            sites.url = "http://" + await serve(front.app())
            async with asyncio.timeout(30):
                while not await _ready(sites):
                    await asyncio.sleep(0.02)
            return sites

        yield begin


async def _ready(sites: TwoSites) -> bool:
    async with sites.client.get(sites.url + "/readyz") as response:
        return response.status == 200
