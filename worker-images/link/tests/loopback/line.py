"""Agents in this process, and the line between them, which can be made bad."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pdd_link import config, keys
from pdd_link.agent import Agent
from pdd_link.document import measurements
from pdd_link.watch import Watched

KEY = b"k" * 32
Passes = Callable[[bytes], bool]


async def until(met: Callable[[], Any], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not met():
            await asyncio.sleep(0.02)


class Line:
    """Carries the packets of one agent's probes to another's port, and the echoes back."""

    def __init__(self, port: int):
        self._target = ("127.0.0.1", port)
        self._far: dict[tuple[str, int], asyncio.Future[tuple[asyncio.DatagramTransport, Any]]] = {}
        self.there: Passes = lambda data: True
        self.back: Passes = lambda data: True
        self.requests: list[bytes] = []

    async def open(self, stack: AsyncExitStack) -> int:
        """Returns the port to send to."""
        self._near, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Received(self._request), local_addr=("127.0.0.1", 0)
        )
        stack.callback(self._close)
        return int(self._near.get_extra_info("sockname")[1])

    def _close(self) -> None:
        self._near.close()
        for far in self._far.values():
            if far.done():
                far.result()[0].close()

    def _request(self, data: bytes, source: tuple[str, int]) -> None:
        self.requests.append(data)
        if not self.there(data):
            return
        if source not in self._far:
            self._far[source] = asyncio.ensure_future(
                asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Received(partial(self._echo, source)), remote_addr=self._target
                )
            )
        self._far[source].add_done_callback(lambda far: far.result()[0].sendto(data))

    def _echo(self, source: tuple[str, int], data: bytes, _: tuple[str, int]) -> None:
        if self.back(data):
            self._near.sendto(data, source)


class _Received(asyncio.DatagramProtocol):
    def __init__(self, handle: Callable[[bytes, tuple[str, int]], None]):
        self.datagram_received = handle  # type: ignore[assignment]


class Site:
    """An agent without peers, to begin with."""

    def __init__(self, directory: Path, site: str, *, key: bytes, link: str):
        directory.mkdir()
        self.directory = directory
        self.name, self.link = site, link
        self.use_keys(key)
        self.configure()
        self.agent = Agent(Watched(directory / "link.json", config.load), Watched(directory, keys.load))

    def use_keys(self, key: bytes, previous: bytes | None = None) -> None:
        """Made known before it is used, as Kubernetes swaps both files at once."""
        if previous is not None:
            (self.directory / "probe.key.previous").write_bytes(previous)
        unfinished = self.directory / "unfinished"
        unfinished.write_bytes(key)
        unfinished.rename(self.directory / "probe.key")

    def configure(self, *peers: dict[str, Any]) -> None:
        unfinished = self.directory / "unfinished"
        unfinished.write_text(
            json.dumps({"link": self.link, "site": self.name, "bandwidthBitsPerSecond": 10**12, "peers": peers})
        )
        unfinished.rename(self.directory / "link.json")

    async def run(self, stack: AsyncExitStack) -> None:
        self.agent.responder.listen(0)
        stack.callback(self.agent.responder.close)
        stack.push_async_callback(_end, asyncio.ensure_future(self.agent.run()))

    @property
    def port(self) -> int:
        return self.agent.responder.port

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(measurements(self.agent).model_dump_json(by_alias=True))
        return told

    @property
    def peer(self) -> Any:
        [one] = self.document["peers"]
        return one

    @property
    def echo(self) -> Any:
        """Of the only peer, in EF."""
        return self.peer["classes"][0]


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def peer(site: str, port: int, **more: Any) -> dict[str, Any]:
    return {"site": site, "host": "127.0.0.1", "probePort": port} | more


@dataclass
class Pair:
    """Of two sites that measure each other. `to_b` carries what a asks and b answers."""

    a: Site
    b: Site
    to_b: Line
    to_a: Line

    def cut(self, *, a_to_b: bool, b_to_a: bool) -> None:
        self.to_b.there = self.to_a.back = lambda data: not a_to_b
        self.to_a.there = self.to_b.back = lambda data: not b_to_a
