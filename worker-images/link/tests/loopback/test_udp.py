import asyncio
import socket
from contextlib import suppress

import pytest
import uvloop

from pdd_link.classes import BULK
from pdd_link.probe.udp import Asker, Listener

from .line import until


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_port_that_was_closed_is_heard_when_it_opens(run: object) -> None:
    """What the kernel is told by ICMP meanwhile ends nothing."""

    async def ask() -> None:
        free = Listener(socket.AF_INET, 0)
        port = free.port
        free.close()
        asker = Asker(socket.AF_INET, ("127.0.0.1", port), BULK)
        came: list[tuple[bytes, int]] = []
        asker.on_arrival(lambda data, address, traffic_class: came.append((data, traffic_class)))
        for _ in range(3):
            with suppress(OSError):
                asker.send(b"anybody?")
            await asyncio.sleep(0.01)
        listener = Listener(socket.AF_INET, port)
        classes: list[int] = []

        def echo(data: bytes, address: tuple[str, int], traffic_class: int) -> None:
            classes.append(traffic_class)
            listener.answer(data, address, traffic_class)

        listener.on_arrival(echo)
        asker.send(b"and now?")
        await until(lambda: came)
        assert came[0][0] == b"and now?"
        assert classes == [BULK]
        asker.close()
        listener.close()

    run(ask())  # type: ignore[operator]
