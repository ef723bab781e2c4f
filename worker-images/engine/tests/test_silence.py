"""Limits on the silence of a connection, on the machine's own loopback."""

import os
import socket
import threading
from pathlib import Path

import pytest

from pdd_engine.plugins.silence import limit_silence


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def pair(request: pytest.FixtureRequest) -> tuple[socket.socket, socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as server:
        try:
            server.bind((request.param, 0))
        except OSError:
            pytest.skip(f"no {request.param} here")
        server.listen()
        client = socket.create_connection(server.getsockname()[:2])
        return client, server.accept()[0]


def limit(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


def test_a_connection_to_the_host_is_limited_and_stays_as_it_was(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    host = client.getpeername()[0].removeprefix("::ffff:")
    with client, server:
        assert limit_silence([host], 7.5) >= 2
        assert limit(client) == limit(server) == 7500
        thread = threading.Thread(target=server.sendall, args=(b"still here",))
        thread.start()
        assert client.recv(10) == b"still here"
        thread.join()


def test_others_are_not(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    with client, server, socket.socketpair()[0], socket.socket():
        assert limit_silence(["192.0.2.1"], 7.5) == 0
        assert limit(client) == 0


def test_no_descriptor_is_kept(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    with client, server, socket.socket(), Path(__file__).open():
        before = sorted(os.listdir("/proc/self/fd"))
        limit_silence([client.getpeername()[0]], 7.5)
        assert sorted(os.listdir("/proc/self/fd")) == before
