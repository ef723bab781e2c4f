"""Two agents as they are, on loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pdd_link import watch
from pdd_link.measure import echoes, pace
from pdd_link.probe import peer as probe
from pdd_link.probe import udp

from .line import KEY, Line, Pair, Site, peer, until

Start = Callable[..., Awaitable[Site]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute's probing in a few seconds."""
    monkeypatch.setattr(pace, "_ECHO_AT_MOST", 0.01)
    monkeypatch.setattr(pace, "_FULL_SIZE_AT_MOST", 0.01)
    monkeypatch.setattr(pace, "_HANDSHAKE_AT_MOST", 0.1)
    monkeypatch.setattr(udp, "_LARGEST_PACKET", 1500)  # as on a line: loopback's is 65,536
    monkeypatch.setattr(watch, "_EVERY_SECONDS", 0.05)
    for module in (echoes, probe):
        monkeypatch.setattr(module, "LATE_SECONDS", 0.3)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def begin(site: str, *, key: bytes = KEY, link: str = "a-b") -> Site:
            started = Site(tmp_path / f"{site}-{link}", site, key=key, link=link)
            await started.run(stack)
            return started

        yield begin


@pytest.fixture
async def pair(start: Start) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        a, b = await start("site-a"), await start("site-b")
        both = Pair(a, b, Line(b.port), Line(a.port))
        a.configure(peer("site-b", await both.to_b.open(stack)))
        b.configure(peer("site-a", await both.to_a.open(stack)))
        await until(lambda: a.agent.peers and b.agent.peers)
        yield both
