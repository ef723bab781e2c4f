"""The largest packet that passes, and in which direction a larger one does not."""

from typing import Any

import pytest

from pdd_link.probe import peer as probe

from .line import Pair, peer, until

HEADERS = 28


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LATE_SECONDS", 0.05)


async def test_the_interfaces_full_size_passes_where_nothing_is_in_the_way(start: Any) -> None:
    a, b = await start("site-a"), await start("site-b")
    a.configure(peer("site-b", b.port))
    b.configure(peer("site-a", a.port))
    await until(lambda: all(s.agent.peers and (s.peer["pathMtu"] or {}).get("returnBytes") for s in (a, b)))
    told = a.peer["pathMtu"]
    assert told["bytes"] == told["expectedBytes"] == told["forwardBytes"] == told["returnBytes"] == 1500
    assert told["fullSizePasses"] is True
    assert told["measuredSecondsAgo"] == 0


@pytest.mark.parametrize("forward", [True, False])
async def test_a_black_hole_is_measured_and_its_direction_told(pair: Pair, forward: bool) -> None:
    def passes(data: bytes) -> bool:
        return len(data) + HEADERS <= 1400

    await until(lambda: pair.a.peer["pathMtu"] and pair.b.peer["pathMtu"])
    if forward:  # from a to b
        pair.to_b.there = pair.to_a.back = passes
    else:
        pair.to_b.back = pair.to_a.there = passes
    await until(lambda: pair.a.peer["pathMtu"]["bytes"] == 1400)
    assert pair.a.peer["pathMtu"]["fullSizePasses"] is False
    # Small packets know nothing of it.
    assert pair.a.echo["lastEchoSecondsAgo"] == 0
    fault, sound = ("forwardBytes", "returnBytes") if forward else ("returnBytes", "forwardBytes")

    def forget_the_time_before() -> None:
        for site in (pair.a, pair.b):
            for stream in site.agent.responder._streams.values():
                for hearing in stream.lanes.values():
                    hearing._requests.clear()

    forget_the_time_before()
    await until(lambda: pair.a.peer["pathMtu"][sound] == 1500)
    await until(lambda: (pair.a.peer["pathMtu"][fault] or 1500) <= 1400)
    # Mended.
    pair.to_b.there = pair.to_b.back = pair.to_a.there = pair.to_a.back = lambda data: True
    await until(lambda: pair.a.peer["pathMtu"]["fullSizePasses"])


async def test_a_dead_line_is_no_black_hole(pair: Pair) -> None:
    await until(lambda: (pair.a.peer["pathMtu"] or {}).get("fullSizePasses"))
    pair.cut(a_to_b=True, b_to_a=True)
    sent = pair.a.echo["sent"]
    await until(lambda: pair.a.echo["sent"] > sent + 60)
    assert pair.a.peer["pathMtu"]["fullSizePasses"] is True
