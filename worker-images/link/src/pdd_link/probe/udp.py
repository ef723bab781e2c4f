"""UDP sockets with a traffic class, never fragmented, in IPv4 and IPv6."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from struct import Struct
from typing import Any

# Linux; not among the constants of `socket`.
_IP_MTU_DISCOVER, _IP_MTU = 10, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24
# Don't fragment, and send whatever an ICMP message said before: what passes is what is to be found out.
_PROBE = 3

_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
_LARGEST_PACKET = 65_535
_BUFFER_BYTES = 65_536
_INT = Struct("=i")

Address = tuple[Any, ...]
"""As the kernel has it: host and port, and more in IPv6."""

Handler = Callable[[bytes, Address, int], None]
"""Of a packet: its payload, where it is from, and the traffic class that it came in."""

# A burst is read at once, and then the others have their turn.
_AT_ONCE = 64


def overhead(family: int) -> int:
    """Bytes of the IP and UDP headers."""
    return _HEADERS[socket.AddressFamily(family)]


async def resolve(host: str, port: int) -> tuple[socket.AddressFamily, Address]:
    """Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = found[0]
    return family, address


class Asker:
    """A socket for packets to one address, in one class. Raises OSError.

    It is not connected: an ICMP message about a packet would be an error of the socket, after which uvloop never reads
    from it again."""

    def __init__(self, family: socket.AddressFamily, address: Address, traffic_class: int):
        self.overhead = overhead(family)
        self._address = address
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            _never_fragment(self._socket)
            self._socket.setsockopt(*_traffic_class_of(family), traffic_class)
        except OSError:
            self._socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        self._socket.sendto(data, self._address)

    def on_arrival(self, handle: Handler) -> None:
        _on_arrival(self._socket, handle)

    def close(self) -> None:
        _close(self._socket)


class Listener:
    """Receives on all addresses of a family. Raises OSError where there is no such family."""

    def __init__(self, family: socket.AddressFamily, port: int):
        self.family = family
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._class = _traffic_class_of(family)
        try:
            self._socket.setblocking(False)
            _never_fragment(self._socket)
            if family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            else:
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            self._socket.bind(("", port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def on_arrival(self, handle: Handler) -> None:
        _on_arrival(self._socket, handle)

    def answer(self, data: bytes, address: Address, traffic_class: int) -> None:
        """Raises OSError."""
        self._socket.sendmsg([data], [(*self._class, _INT.pack(traffic_class))], 0, address)

    def close(self) -> None:
        _close(self._socket)


def listen(port: int) -> list[Listener]:
    """In IPv4, and in IPv6 where there is any. With port 0 the kernel chooses one. Raises OSError."""
    first = Listener(socket.AF_INET, port)
    opened = [first]
    with contextlib.suppress(OSError):
        opened.append(Listener(socket.AF_INET6, first.port))
    return opened


def _never_fragment(opened: socket.socket) -> None:
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PROBE)
    else:
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)


def _traffic_class_of(family: int) -> tuple[int, int]:
    """The socket option, and the ancillary message."""
    if family == socket.AF_INET6:
        return socket.IPPROTO_IPV6, socket.IPV6_TCLASS
    return socket.IPPROTO_IP, socket.IP_TOS


def mtu_toward(family: int, address: Address) -> int:
    """The largest packet, in bytes, that the kernel takes for an address: the route's, or the interface's. 0 where
    there is no way to it."""
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(address)
            if family == socket.AF_INET6:
                known = asked.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
            else:
                known = asked.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        except OSError:
            return 0
    return min(known, _LARGEST_PACKET)


def _on_arrival(opened: socket.socket, handle: Handler) -> None:
    def readable() -> None:
        for _ in range(_AT_ONCE):
            try:
                data, ancillary, _, address = opened.recvmsg(_BUFFER_BYTES, 64)
            except (BlockingIOError, InterruptedError):
                return
            handle(data, address, _traffic_class(ancillary))

    asyncio.get_running_loop().add_reader(opened, readable)


def _close(opened: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(opened)
    opened.close()


def _traffic_class(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
            return value[0]
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_TCLASS):
            return int(_INT.unpack(value)[0])
    return 0
