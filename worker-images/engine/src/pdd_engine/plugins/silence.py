"""TCP connections to a host end when it has acknowledged nothing for a while.

Linux keeps a connection over which something is under way for a quarter of an hour of silence; its keep-alive probes,
which UCX sets to seconds, are sent only when nothing is.
"""

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

OPEN_FILES = "/proc/self/fd"


def limit_silence(hosts: Collection[str], seconds: float) -> int:
    """For all connections of this process, whichever library made them. Returns how many there are to these hosts."""
    found = 0
    for name in os.listdir(OPEN_FILES):
        # No socket, not connected, or closed meanwhile.
        with suppress(OSError), _socket(int(name)) as connection:
            if connection.type == socket.SOCK_STREAM and _host(connection) in hosts:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
                found += 1
    return found


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """By a copy of its descriptor, which is closed again: its owner's stays as it is."""
    copy = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with connection:
        yield connection


def _host(connection: socket.socket) -> str:
    peer = connection.getpeername()
    return str(peer[0]).removeprefix("::ffff:") if isinstance(peer, tuple) else ""
