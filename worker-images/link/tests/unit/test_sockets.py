"""The answer of the kernel, byte by byte (little-endian, as all our machines are)."""

import socket
import struct
from errno import EPERM
from typing import Any

import pytest

from pdd_link.sockets import Connection, by_remote, parse, request

DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


def tcp_info(*, app_limited: bool = False, rate: int = 12_500_000, min_rtt: int = 20_300) -> bytes:
    info = bytearray(232)
    info[7] = app_limited | 0b110  # the other bits of the byte are another field's
    struct.pack_into("=I", info, 60, 1500)
    struct.pack_into("=I", info, 80, 88)
    struct.pack_into("=I", info, 100, 4)
    struct.pack_into("=Q", info, 120, 3_000_000)
    struct.pack_into("=II", info, 136, 2_100, 900)
    struct.pack_into("=I", info, 148, min_rtt)
    struct.pack_into("=Q", info, 160, rate)
    return bytes(info)


def message(info: bytes, *, family: int = socket.AF_INET, local: str = "10.0.0.1", remote: str = "10.1.0.1") -> bytes:
    ends = b"".join(socket.inet_pton(family, end).ljust(16, b"\0") for end in (local, remote))
    body = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack("!HH", 5600, 40_000) + ends + bytes(12) + bytes(20)
    # An attribute of another kind and odd length comes first.
    body += struct.pack("=HHBxxx", 5, 8, 7) + struct.pack("=HHBxxx", 5, 8, 7)
    body += struct.pack("=HH", 4 + len(info), 2) + info
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def connection(**changes: Any) -> Connection:
    [found], _ = parse(message(tcp_info(**changes)))
    return found


def test_a_connection_is_read() -> None:
    assert connection() == Connection(
        local="10.0.0.1", local_port=5600, remote="10.1.0.1", remote_port=40_000, min_round_trip_micros=20_300,
        delivery_bytes_per_second=12_500_000, window_segments=88, path_mtu=1500, segments_out=2_100,
        segments_retransmitted=4, bytes_acked=3_000_000,
    )  # fmt: skip


def test_a_rate_that_the_sender_limited_is_not_the_lines() -> None:
    assert connection(app_limited=True).delivery_bytes_per_second is None
    assert connection(rate=0).delivery_bytes_per_second is None
    assert connection(min_rtt=0xFFFFFFFF).min_round_trip_micros is None


@pytest.mark.parametrize(("told", "shown"), [("::ffff:10.1.0.1", "10.1.0.1"), ("fd00::1", "fd00::1")])
def test_addresses_of_ipv6(told: str, shown: str) -> None:
    [found], done = parse(message(tcp_info(), family=socket.AF_INET6, local="::1", remote=told) + DONE)
    assert (found.local, found.remote, done) == ("::1", shown, True)


def test_an_older_kernel_tells_less() -> None:
    [found], _ = parse(message(tcp_info()[:152]))
    assert (found.delivery_bytes_per_second, found.min_round_trip_micros) == (None, 20_300)
    [found], _ = parse(message(b""))
    assert found.segments_out == 0


def test_several_messages_until_the_last() -> None:
    found, done = parse(message(tcp_info()) * 3)
    assert (len(found), done) == (3, False)
    assert parse(message(tcp_info()) + DONE + b"garbage")[1]
    assert parse(b"") == ([], False)
    assert parse(bytes(16)) == ([], False)


def test_the_kernels_refusal_is_raised() -> None:
    with pytest.raises(PermissionError, match="sock_diag"):
        parse(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -EPERM))


def test_the_request_is_for_established_tcp_with_its_info() -> None:
    asked = request(socket.AF_INET)
    assert len(asked) == struct.unpack_from("=I", asked)[0] == 72
    assert asked[16:19] == bytes([socket.AF_INET, socket.IPPROTO_TCP, 2])
    assert struct.unpack_from("=I", asked, 20) == (2,)


def test_connections_to_one_address_share_its_line() -> None:
    grouped = by_remote([connection(), connection(min_rtt=19_000), connection(app_limited=True)])
    [remote] = grouped.values()
    assert list(grouped) == ["10.1.0.1"]
    assert (remote.connections, remote.delivery_bytes_per_second, remote.min_round_trip_micros) == (
        3, 25_000_000, 19_000,
    )  # fmt: skip
    assert (remote.segments_out, remote.segments_retransmitted, remote.bytes_acked) == (6_300, 12, 9_000_000)
