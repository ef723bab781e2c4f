"""`pdd-router --config FILE`: the mode is in the file."""

import argparse
import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from pdd_router.config import ConfigError, FrontConfig, MainConfig, load
from pdd_router.config_watch import ConfigWatch
from pdd_router.front import app as front
from pdd_router.front.refusals import answer_in_api_format
from pdd_router.logs import configure_logging
from pdd_router.main import app as main_site
from pdd_router.sessions import CLIENT_KEEP_ALIVE_SECONDS, LINE_KEEP_ALIVE_SECONDS

_LOG = structlog.get_logger(__name__)

# How long running answers may go on after SIGTERM. The pod's grace period must be longer.
_DRAIN_SECONDS = 60.0


def main() -> int:
    arguments = argparse.ArgumentParser(prog="pdd-router", description=__doc__)
    arguments.add_argument("--config", type=Path, required=True, help="the router's JSON configuration")
    arguments.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod's own
    arguments.add_argument("--port", type=int, default=8000)
    options = arguments.parse_args()
    configure_logging()
    try:
        config = load(options.config)
    except ConfigError as error:
        print(f"pdd-router: {error}", file=sys.stderr)
        return 2
    keep_alive = CLIENT_KEEP_ALIVE_SECONDS if isinstance(config, FrontConfig) else LINE_KEEP_ALIVE_SECONDS
    uvloop.run(_serve(_application(options.config, config), options.host, options.port, keep_alive))
    return 0


def _application(path: Path, config: FrontConfig | MainConfig) -> AbstractAsyncContextManager[web.Application]:
    if isinstance(config, FrontConfig):
        answer_in_api_format()
        return front.serving(ConfigWatch(path, config))
    return main_site.serving(ConfigWatch(path, config))


async def _serve(
    application: AbstractAsyncContextManager[web.Application], host: str, port: int, keep_alive: float
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with application as app:
        # A client that leaves cancels its handler, and with it everything the handler has open upstream.
        runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=keep_alive,
            shutdown_timeout=_DRAIN_SECONDS,
        )
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        _LOG.info("listening", host=host, port=port)
        await stop.wait()
        _LOG.info("stopping: no new requests, running ones have time to end", seconds=_DRAIN_SECONDS)
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
