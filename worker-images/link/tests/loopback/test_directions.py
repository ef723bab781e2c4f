"""Which direction of the line is at fault, from the documents of both ends."""

import socket
from typing import Any

import pytest

from pdd_link.measure import echoes
from pdd_link.packet import Lane

from .line import Pair, Site, peer, until

try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    has_ipv6 = True
except OSError:
    has_ipv6 = False
without_ipv6 = pytest.mark.skipif(not has_ipv6, reason="this machine has no IPv6")


def sequence(data: bytes) -> int:
    return int.from_bytes(data[36:40], "big")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=without_ipv6), "localhost"])
async def test_a_sound_line(start: Any, host: str) -> None:
    a, b = await start("site-a"), await start("site-b")
    a.configure(peer("site-b", b.port, host=host))
    b.configure(peer("site-a", a.port, host=host))
    await until(lambda: all(s.agent.peers and s.echo["echoed"] > 20 and s.echo["heard"]["received"] > 20
                            for s in (a, b)))  # fmt: skip
    for told in a.peer["classes"]:
        assert 0 < told["roundTripMicros"]["p50"] <= told["roundTripMicros"]["p99"]
        assert told["jitterMicros"] > 0
        assert told["forwardLossPercent"] == told["heard"]["lossPercent"] == "0"
        assert told["lastEchoSecondsAgo"] == told["heard"]["lastHeardSecondsAgo"] == 0
        # Marked as sent: both classes came in as themselves.
        assert told["heard"]["remarked"] == 0
    assert [told["trafficClass"] for told in a.peer["classes"]] == ["EF", "CS1"]
    assert [told["received"] > 20 for told in a.document["heard"]] == [True, True]


async def test_what_is_remarked_on_the_way_is_told(pair: Pair) -> None:
    # The line of the tests sends everything in the default class.
    await until(lambda: pair.a.echo["heard"]["received"] > 5)
    heard = pair.a.echo["heard"]
    assert heard["remarked"] == heard["received"]


@pytest.mark.parametrize(("a_to_b", "b_to_a"), [(True, False), (False, True), (True, True)])
async def test_a_dead_direction_is_seen_from_both_ends(pair: Pair, a_to_b: bool, b_to_a: bool) -> None:
    await until(lambda: pair.a.echo["echoed"] > 5 and pair.b.echo["echoed"] > 5)
    pair.cut(a_to_b=a_to_b, b_to_a=b_to_a)

    def counts(site: Site) -> tuple[int, int, int]:
        return site.echo["sent"], site.echo["echoed"], site.document["heard"][0]["received"]

    # What was on its way has arrived by then.
    before = {}
    for site in (pair.a, pair.b):
        before[site.name] = counts(site)
    await until(lambda: all(counts(s)[0] > before[s.name][0] + 20 for s in (pair.a, pair.b)))
    middle = {site.name: counts(site) for site in (pair.a, pair.b)}
    await until(lambda: all(counts(s)[0] > middle[s.name][0] + 20 for s in (pair.a, pair.b)))
    for site, heard in ((pair.a, not b_to_a), (pair.b, not a_to_b)):
        sent, echoed, received = (now - then for now, then in zip(counts(site), middle[site.name], strict=True))
        assert sent > 20
        assert echoed == 0
        assert (received > 0) is heard


async def test_loss_is_told_by_direction(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echoes, "LATE_SECONDS", 1.0)  # on a busy machine an echo may take a while
    pair.to_b.there = lambda data: sequence(data) % 2 == 0
    pair.to_a.back = lambda data: sequence(data) % 4 != 0
    await until(lambda: pair.a.echo["sent"] > 60 and pair.b.echo["sent"] > 60)
    a, b = pair.a.echo, pair.b.echo
    assert a["forwardLossPercent"] == "50"
    assert a["returnLossPercent"] == "0"
    # A direction's loss is the same seen from the other end, but for what the window cuts off.
    assert 45 < float(b["heard"]["lossPercent"]) < 55
    assert b["forwardLossPercent"] == "0"
    assert 20 < float(b["returnLossPercent"]) < 30


async def test_the_class_that_suffers_is_told(pair: Pair) -> None:
    pair.to_b.there = lambda data: data[4] != Lane.CS1
    await until(lambda: pair.a.peer["classes"][1]["sent"] > 20)
    expedited, bulk = pair.a.peer["classes"]
    assert expedited["echoed"] > 10
    assert (bulk["echoed"], bulk["lossPercent"], bulk["lastEchoSecondsAgo"]) == (0, "100", None)


async def test_a_peer_that_is_gone_is_forgotten_and_one_that_comes_is_measured(start: Any) -> None:
    a, b, c = await start("site-a"), await start("site-b"), await start("site-b", link="spare")
    a.configure(peer("site-b", b.port))
    await until(lambda: a.agent.peers and a.echo["echoed"] > 3)
    a.configure(peer("site-b", c.port))
    await until(lambda: a.peer["probePort"] == c.port and a.echo["sent"] > 3)
    # It is of another link, so it does not answer.
    assert a.echo["echoed"] == 0
    a.configure()
    await until(lambda: not a.document["peers"])
