"""UDP sockets with a traffic class, never fragmented, in IPv4 and IPv6."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from struct import Struct

# Linux; not among the constants of `socket`.
_IP_MTU_DISCOVER, _IP_MTU = 10, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24
# Don't fragment, and send whatever an ICMP message said before: what passes is what is to be found out.
_PROBE = 3

_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
_LARGEST_PACKET = 65_535
_BUFFER_BYTES = 65_536
_INT = Struct("=i")

Handler = Callable[[bytes, tuple[str, int], int], None]
"""Of a packet: its payload, where it is from, and the traffic class that it came in."""

# A burst is read at once, and then the others have their turn.
_AT_ONCE = 64


def overhead(family: int) -> int:
    """Bytes of the IP and UDP headers."""
    return _HEADERS[socket.AddressFamily(family)]


async def connect(host: str, port: int, traffic_class: int) -> socket.socket:
    """A socket for packets to this address only. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        _never_fragment(opened)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
        else:
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)
        opened.connect(address)
    except OSError:
        opened.close()
        raise
    return opened


class Listener:
    """Receives on all addresses of a family. Raises OSError where there is no such family."""

    def __init__(self, family: socket.AddressFamily, port: int):
        self.family = family
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._class = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if family == socket.AF_INET6
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )
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
        on_arrival(self._socket, handle)

    def answer(self, data: bytes, address: tuple[str, int], traffic_class: int) -> None:
        """Raises OSError."""
        self._socket.sendmsg([data], [(*self._class, _INT.pack(traffic_class))], 0, address)

    def close(self) -> None:
        close(self._socket)


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


def mtu(connected: socket.socket) -> int:
    """The largest packet, in bytes, that the kernel takes for this peer: the route's, or the interface's."""
    if connected.family == socket.AF_INET6:
        known = connected.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
    else:
        known = connected.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    return min(known, _LARGEST_PACKET)


def mtu_toward(address: tuple[str, int], family: int) -> int:
    """The same for a peer that we have no socket for; 0 where there is no way to it."""
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(address)
            return mtu(asked)
        except OSError:
            return 0


def on_arrival(opened: socket.socket, handle: Handler) -> None:
    """Calls `handle` for each packet until `close`."""

    def readable() -> None:
        for _ in range(_AT_ONCE):
            try:
                data, ancillary, _, address = opened.recvmsg(_BUFFER_BYTES, 64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # an ICMP message about an earlier packet: it will show as loss
            handle(data, address, _traffic_class(ancillary))

    asyncio.get_running_loop().add_reader(opened, readable)


def close(opened: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(opened)
    opened.close()


def _traffic_class(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
            return value[0]
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_TCLASS):
            return int(_INT.unpack(value)[0])
    return 0
