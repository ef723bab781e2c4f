"""`pdd-link --config FILE --keys DIR`: measures the line that the file names, until it is told to end."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from pdd_link import config, keys
from pdd_link.agent import Agent
from pdd_link.app import application
from pdd_link.config import ConfigError
from pdd_link.logs import configure_logging
from pdd_link.watch import Watched

_LOG = structlog.get_logger(__name__)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="pdd-link", description=__doc__)
    arguments.add_argument("--config", type=Path, required=True, help="the link and its peers, JSON")
    arguments.add_argument("--keys", type=Path, required=True, help="directory with probe.key and the TLS files")
    arguments.add_argument("--probe-port", type=int, default=7401, help="UDP: where it answers probes")
    arguments.add_argument("--port", type=int, default=9090, help="TCP: metrics and measurements")
    options = arguments.parse_args()
    configure_logging()
    try:
        agent = Agent(Watched(options.config, config.load), Watched(options.keys, keys.load))
    except ConfigError as error:
        print(f"pdd-link: {error}", file=sys.stderr)
        return 2
    uvloop.run(_serve(agent, options.probe_port, options.port))
    return 0


async def _serve(agent: Agent, probe_port: int, port: int) -> None:
    loop = asyncio.get_running_loop()
    agent.responder.listen(probe_port)
    runner = web.AppRunner(application(agent), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    _LOG.info("listening", probe_port=agent.responder.port, port=port)
    running = asyncio.ensure_future(agent.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    await runner.cleanup()
    agent.responder.close()
    if not running.cancelled():
        running.result()


if __name__ == "__main__":
    sys.exit(main())
