"""What a token costs the routers: CPU time of front and main, each a process of its own, over simulated engines.

    python e2e/bench/router_profile.py [--streams 50] [--tokens 200] [--profile]

Engines, renderer and client are simulated or bare: they only have to be fast enough. The limit that it is compared
with, in the same run, is a proxy that only passes on such a renderer's bytes (aiohttp on uvloop, as the router).
`--profile` prints where the front's time goes.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import platform
import pstats
import signal
import sys
import time
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import ClientSession, TCPConnector, web

from pdd_e2e.simulated.engine import SimulatedEngine
from pdd_e2e.simulated.renderer import SimulatedRenderer
from pdd_router.config import FrontConfig, FrontServices, MainConfig, MainServices, Routing, Site
from pdd_router.config_watch import ConfigWatch
from pdd_router.engines.discovery import Discovery
from pdd_router.engines.pool import Endpoint
from pdd_router.front.app import Front
from pdd_router.logs import configure_logging
from pdd_router.main.app import Main
from pdd_router.sessions import line_session, local_session
from pdd_router.tasks import running

_COMMON = {"deployment": "d", "namespace": "n", "model": "m"}
_PROMPT = " ".join(map(str, range(64)))


async def _serve(app: web.Application) -> int:
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port


async def _engines(told: Connection, token_seconds: float) -> None:
    apps = {
        "prefill": SimulatedEngine("prefill").app(),
        "relay": SimulatedEngine("relay-decode", token_seconds=token_seconds).app(),
        "main": SimulatedEngine("main-decode", token_seconds=token_seconds).app(),
        "renderer": SimulatedRenderer().app(),
        "echo": _echo(token_seconds),
    }
    told.send({name: await _serve(app) for name, app in apps.items()})
    await asyncio.Event().wait()


def _echo(token_seconds: float) -> web.Application:
    """Streams as the renderer does, without a router behind it: what the proxy passes on."""

    async def handler(http: web.Request) -> web.StreamResponse:
        count = (await http.json())["max_tokens"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        event = b'data: {"choices":[{"index":0,"text":" 123","finish_reason":null,"token_ids":[123]}]}\n\n'
        for _ in range(count):
            await asyncio.sleep(token_seconds)
            await response.write(event)
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.add_routes([web.post("/v1/completions", handler)])
    return app


async def _main(told: Connection, engines: dict[str, int]) -> None:
    config = MainConfig(mode="main", site="site-b", services=MainServices(main_decode="md"), **_COMMON)
    async with local_session() as local:
        main = Main(ConfigWatch(Path(__file__), config), local)
        main._engines.update([Endpoint("md-0", f"http://127.0.0.1:{engines['main']}")])
        async with running(main.background()):
            told.send(await _serve(main.app()))
            await asyncio.Event().wait()


async def _front(told: Connection, engines: dict[str, int], main: int) -> None:
    config = FrontConfig(
        mode="front",
        site="site-a",
        services=FrontServices(prefill="p", relay_decode="r", renderer="t"),
        sites=[Site(name="b", link="l", addresses=[f"127.0.0.1:{main}"], bandwidth_bits_per_second=10**10)],
        routing=Routing(tolerated_wait_millis=60_000, max_requests=10_000, request_overrides="Allowed"),
        **_COMMON,
    )
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(local_session())
        line = await stack.enter_async_context(line_session())
        front = Front(ConfigWatch(Path(__file__), config), local, line)
        front._prefill.update([Endpoint("p-0", f"http://127.0.0.1:{engines['prefill']}")])
        front._relay.update([Endpoint("r-0", f"http://127.0.0.1:{engines['relay']}")])
        front._renderers.update([Endpoint("t-0", f"http://127.0.0.1:{engines['renderer']}")])
        async with running(front.background()):
            told.send(await _serve(front.app()))
            await asyncio.Event().wait()


async def _proxy(told: Connection, engines: dict[str, int]) -> None:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def handler(http: web.Request) -> web.StreamResponse:
            async with session.post(
                f"http://127.0.0.1:{engines['echo']}/v1/completions", data=await http.read()
            ) as answer:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(http)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        app = web.Application()
        app.add_routes([web.post("/v1/completions", handler)])
        told.send(await _serve(app))
        await asyncio.Event().wait()


def _run(coroutine: Any, profile: bool) -> None:
    async def nothing_to_discover(self: Any) -> None:
        await asyncio.Event().wait()

    async def nothing_to_watch(self: Any) -> None:
        await asyncio.Event().wait()

    Discovery.run, ConfigWatch.run = nothing_to_discover, nothing_to_watch  # type: ignore[method-assign] # no cluster here
    configure_logging()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - a line for each request is written, and costs its part
    profiler = cProfile.Profile() if profile else None

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        if profiler:
            profiler.enable()
        uvloop.run(coroutine)
    except KeyboardInterrupt:
        pass
    finally:
        if profiler:
            profiler.disable()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)


def _start(function: Any, *arguments: Any, profile: bool = False) -> tuple[multiprocessing.Process, Any]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=lambda: _run(function(there, *arguments), profile), daemon=True)
    process.start()
    return process, here.recv()


def _cpu_seconds(process: multiprocessing.Process) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _load(url: str, streams: int, tokens: int, headers: dict[str, str]) -> None:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def one() -> None:
            body = {"model": "m", "prompt": _PROMPT, "max_tokens": tokens, "stream": True}
            async with session.post(url, json=body, headers=headers) as response:
                raw = await response.read()
                if raw.count(b'"text"') != tokens or not raw.endswith(b"[DONE]\n\n"):
                    raise RuntimeError(f"not {tokens} tokens: {raw[-300:]!r}")

        await asyncio.gather(*(one() for _ in range(streams)))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--streams", type=int, default=50)
    arguments.add_argument("--tokens", type=int, default=200)
    arguments.add_argument("--token-millis", type=float, default=50.0)
    arguments.add_argument("--profile", action="store_true")
    asked = arguments.parse_args()
    multiprocessing.set_start_method("fork")
    _, engines = _start(_engines, asked.token_millis / 1e3)
    main_router, main_port = _start(_main, engines)
    front, front_port = _start(_front, engines, main_port, profile=asked.profile)
    proxy, proxy_port = _start(_proxy, engines)
    time.sleep(3)  # facts, channel and pings
    count = asked.streams * asked.tokens
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    print(f"{asked.streams} streams of {asked.tokens} tokens, one in {asked.token_millis:.0f} ms")
    for name, port, headers in (
        ("P-MD", front_port, {"X-PDD-Pipeline": "P-MD"}),
        ("P-RLD-MD", front_port, {"X-PDD-Pipeline": "P-RLD-MD", "X-PDD-Cut": "20"}),
        ("bare proxy", proxy_port, {}),
    ):
        url = f"http://127.0.0.1:{port}/v1/completions"
        asyncio.run(_load(url, 2, 5, headers))  # connections
        before = {process: _cpu_seconds(process) for process in (front, main_router, proxy)}
        began = time.perf_counter()
        asyncio.run(_load(url, asked.streams, asked.tokens, headers))
        wall = time.perf_counter() - began
        cpu = {process: (_cpu_seconds(process) - before[process]) / count * 1e6 for process in before}
        bare = port == proxy_port
        parts = f"proxy {cpu[proxy]:.0f}" if bare else f"front {cpu[front]:.0f}, main {cpu[main_router]:.0f}"
        print(f"{name:>10}: {parts} us of CPU a token; {count / wall:.0f} tokens/s")
    for process in (front, main_router, proxy):
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
