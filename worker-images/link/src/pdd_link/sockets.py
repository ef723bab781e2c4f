"""What the kernel knows of the TCP connections of this network namespace, by netlink's sock_diag.

Needs no privileges, and nothing but the standard library: a pod sees its own connections only, so the router and the
engines use this file from inside their pods.
"""

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from os import strerror
from struct import Struct

_MESSAGE = Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, extensions, states, any address
_CONNECTION = Struct("!BBBBHH16s16s")  # inet_diag_msg as far as its addresses: they are in network order
_CONNECTION_BYTES = 72
_ATTRIBUTE = Struct("=HH")  # rtattr: length, type

_NETLINK_SOCK_DIAG = 4  # not among the constants of `socket`
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_TCP_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED = 1

# struct tcp_info; an older kernel's is shorter, and what it lacks reads as zero.
_INFO_BYTES = 216
_APP_LIMITED = 7  # the byte whose lowest bit is tcpi_delivery_rate_app_limited, on little-endian machines
_RETRANSMISSIONS, _CWND, _SEGMENTS_OUT, _MIN_RTT, _PATH_MTU = 100, 80, 136, 148, 60
_BYTES_ACKED, _DELIVERY_RATE = 120, 160
_I32, _U32, _U64 = Struct("=i"), Struct("=I"), Struct("=Q")

# The kernel's way of saying that it has no sample yet.
_NO_MIN_RTT = 0xFFFFFFFF


@dataclass(frozen=True)
class Connection:
    local: str
    local_port: int
    remote: str
    remote_port: int
    min_round_trip_micros: int | None
    delivery_bytes_per_second: int | None
    """The rate at which the receiver acknowledged; None where the sender had too little to send to tell the line's."""
    window_segments: int
    path_mtu: int
    segments_out: int
    segments_retransmitted: int
    bytes_acked: int


@dataclass(frozen=True)
class Remote:
    """All connections to one address."""

    connections: int
    min_round_trip_micros: int | None
    delivery_bytes_per_second: int | None
    """The sum over those that can tell: connections to one address share its line."""
    segments_out: int
    segments_retransmitted: int
    bytes_acked: int


def established() -> list[Connection]:
    """The established TCP connections of this network namespace. Raises OSError."""
    return [connection for family in (socket.AF_INET, socket.AF_INET6) for connection in _dump(family)]


def by_remote(connections: Iterable[Connection]) -> dict[str, Remote]:
    grouped: dict[str, list[Connection]] = {}
    for connection in connections:
        grouped.setdefault(connection.remote, []).append(connection)
    return {remote: _together(same) for remote, same in grouped.items()}


def _together(same: list[Connection]) -> Remote:
    rates = [c.delivery_bytes_per_second for c in same if c.delivery_bytes_per_second is not None]
    return Remote(
        connections=len(same),
        min_round_trip_micros=min(
            (c.min_round_trip_micros for c in same if c.min_round_trip_micros is not None), default=None
        ),
        delivery_bytes_per_second=sum(rates) if rates else None,
        segments_out=sum(c.segments_out for c in same),
        segments_retransmitted=sum(c.segments_retransmitted for c in same),
        bytes_acked=sum(c.bytes_acked for c in same),
    )


def request(family: int) -> bytes:
    """The message that asks for all established TCP connections of an address family."""
    length = _MESSAGE.size + _REQUEST.size
    return _MESSAGE.pack(length, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + _REQUEST.pack(
        family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), 1 << _ESTABLISHED
    )


def parse(datagram: bytes) -> tuple[list[Connection], bool]:
    """The connections of one datagram of the answer, and whether it was the last. Raises the kernel's OSError."""
    found: list[Connection] = []
    for kind, payload in _messages(datagram):
        if kind == _DONE:
            return found, True
        if kind == _ERROR:
            number = -_I32.unpack_from(payload)[0]
            raise OSError(number, f"sock_diag: {strerror(number)}")
        if kind == _SOCK_DIAG_BY_FAMILY and len(payload) >= _CONNECTION_BYTES:
            found.append(_connection(payload))
    return found, False


def _dump(family: int) -> Iterator[Connection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(request(family), (0, 0))
        done = False
        while not done:
            connections, done = parse(kernel.recv(65536))
            yield from connections


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _MESSAGE.size <= len(datagram):
        length, kind, _, _, _ = _MESSAGE.unpack_from(datagram, offset)
        if length < _MESSAGE.size:
            return
        yield kind, datagram[offset + _MESSAGE.size : offset + length]
        offset += (length + 3) & ~3


def _connection(payload: bytes) -> Connection:
    family, _, _, _, local_port, remote_port, local, remote = _CONNECTION.unpack_from(payload)
    info = _tcp_info(payload[_CONNECTION_BYTES:]).ljust(_INFO_BYTES, b"\0")

    def u32(offset: int) -> int:
        return int(_U32.unpack_from(info, offset)[0])

    def u64(offset: int) -> int:
        return int(_U64.unpack_from(info, offset)[0])

    rate = u64(_DELIVERY_RATE)
    return Connection(
        local=_address(family, local),
        local_port=local_port,
        remote=_address(family, remote),
        remote_port=remote_port,
        min_round_trip_micros=None if u32(_MIN_RTT) in (0, _NO_MIN_RTT) else u32(_MIN_RTT),
        delivery_bytes_per_second=None if info[_APP_LIMITED] & 1 or not rate else rate,
        window_segments=u32(_CWND),
        path_mtu=u32(_PATH_MTU),
        segments_out=u32(_SEGMENTS_OUT),
        segments_retransmitted=u32(_RETRANSMISSIONS),
        bytes_acked=u64(_BYTES_ACKED),
    )


def _tcp_info(attributes: bytes) -> bytes:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, offset)
        if kind == _TCP_INFO:
            return attributes[offset + _ATTRIBUTE.size : offset + length]
        if length < _ATTRIBUTE.size:
            break
        offset += (length + 3) & ~3
    return b""


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)
