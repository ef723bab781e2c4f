"""Who is not answered, and what is counted instead."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pdd_link.packet import NOBODY, SIZE, Kind, Lane, Packet, pack, tag

from .line import KEY, Line, Pair, Site, peer, until

LINK = tag("a-b")


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("pdd_link_probes_dropped_total", {"reason": reason}) or 0.0


def request(sequence: int, *, site: str = "site-a", kind: Kind = Kind.REQUEST, sender: bytes = b"12345678") -> Packet:
    return Packet(kind, Lane.EF, 0, tag(site), sender, NOBODY, sequence, 0, 1500, 0)


@contextmanager
def stranger(site: Site) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setblocking(False)
        opened.connect(("127.0.0.1", site.port))
        yield opened


async def answered(opened: socket.socket, data: bytes, *, after: bytes) -> list[bytes]:
    """What comes back of `data`; `after` is a good request, whose echo tells that no more will."""
    loop = asyncio.get_running_loop()
    opened.send(data)
    opened.send(after)
    answers: list[bytes] = []
    async with asyncio.timeout(30):
        while not answers or answers[-1][36:40] != after[36:40]:
            answers.append(await loop.sock_recv(opened, 65_535))
    return answers[:-1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "malformed"),
        (pack(request(1), link=LINK, key=b"s" * 32), "unauthentic"),
        (pack(request(1), link=tag("a-c"), key=KEY), "other_link"),
        (pack(request(1, site="site-b"), link=LINK, key=KEY), "own_site"),
        (pack(request(1, kind=Kind.REPLY), link=LINK, key=KEY), "unasked"),
        (pack(request(9), link=LINK, key=KEY), "replayed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "packet",
)
async def test_it_is_not_answered_and_counted(start: Any, data: bytes, reason: str) -> None:
    b = await start("site-b")
    with stranger(b) as opened:
        assert await answered(opened, pack(request(9), link=LINK, key=KEY), after=pack(
            request(10), link=LINK, key=KEY)) != []  # fmt: skip
        before = dropped(reason)
        assert await answered(opened, data, after=pack(request(11), link=LINK, key=KEY)) == []
        assert dropped(reason) == before + 1
    assert b.document["heard"][0]["received"] == 3


@pytest.mark.parametrize("size", [SIZE, 1000, 65_507])
async def test_the_answer_has_the_length_of_the_request(start: Any, size: int) -> None:
    b = await start("site-b")
    with stranger(b) as opened:
        [answer] = await answered(opened, pack(request(1), link=LINK, key=KEY, size=size), after=pack(
            request(2), link=LINK, key=KEY))  # fmt: skip
    assert len(answer) == size


async def test_recorded_packets_count_no_second_time(pair: Pair) -> None:
    await until(lambda: pair.a.echo["echoed"] > 10)
    before, recorded = dropped("replayed"), [data for data in pair.to_b.requests if len(data) == SIZE][-10:]
    with stranger(pair.b) as opened:
        for data in recorded:
            opened.send(data)
        await until(lambda: dropped("replayed") >= before + len(recorded))
        with pytest.raises(BlockingIOError):
            opened.recv(65_535)


async def test_a_recorded_echo_is_no_second_one(pair: Pair) -> None:
    doubled = pair.to_b.back

    def twice(data: bytes) -> bool:
        for probe in pair.to_b._far:
            pair.to_b._near.sendto(data, probe)
        return doubled(data)

    pair.to_b.back = twice
    before = dropped("stale")
    await until(lambda: dropped("stale") > before + 5)
    assert pair.a.echo["echoed"] <= pair.a.echo["sent"]


async def test_keys_rotate_without_a_lost_probe(start: Any) -> None:
    """Known at both ends before it is used, as the operator does it."""
    new = b"n" * 32
    async with AsyncExitStack() as stack:
        a, b = await start("site-a"), await start("site-b")
        line = Line(b.port)
        a.configure(peer("site-b", await line.open(stack)))
        await until(lambda: a.agent.peers and a.echo["echoed"] > 5)
        refused = dropped("unauthentic")
        for site, key, previous in ((a, KEY, new), (b, KEY, new), (a, new, KEY), (b, new, KEY)):
            site.use_keys(key, previous)
            await until(lambda site=site, key=key: site.agent._keys.current.probe == key)
            await until(lambda previous=previous, site=site: site.agent._keys.current.previous == previous)
        for site in (a, b):
            (site.directory / "probe.key.previous").unlink()
            await until(lambda site=site: site.agent._keys.current.previous is None)
        echoed = a.echo["echoed"]
        await until(lambda: a.echo["echoed"] > echoed + 5)
        assert dropped("unauthentic") == refused
        with stranger(b) as opened:
            good = pack(request(1), link=LINK, key=new)
            assert await answered(opened, pack(request(2), link=LINK, key=KEY), after=good) == []


async def test_a_key_that_only_one_end_has_is_told_by_the_count(start: Any) -> None:
    a, b = await start("site-a"), await start("site-b", key=b"x" * 32)
    a.configure(peer("site-b", b.port))
    before = dropped("unauthentic")
    await until(lambda: dropped("unauthentic") > before + 3)
    assert a.echo["echoed"] == 0
