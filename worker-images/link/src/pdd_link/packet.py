"""The probe packet: a request, and the reply that has exactly its length.

Network byte order, 60 bytes, the larger ones with zeros before the code:

    magic 2 "PD" | version 1 | kind 1 | lane 1 | zero 1 | stream 2 | mtu 2 | largest 2 | link 4 | site 4 |
    sender 8 | addressee 8 | sequence 4 | received 4 | ... | code 16

The code is HMAC-SHA256 of all before it, cut to 16 bytes, under a key that only this link's agents have. There is no
time in a packet: the sender remembers when it sent, by its own clock.
"""

import hashlib
import hmac
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

_LAYOUT = Struct("!2sBBBxHHH4s4s8s8sII")
_MAGIC = b"PD"
_VERSION = 1
_CODE_BYTES = 16
SIZE = _LAYOUT.size + _CODE_BYTES
KEY_BYTES = 32
NOBODY = bytes(8)


class Kind(IntEnum):
    REQUEST = 0
    REPLY = 1


class Lane(IntEnum):
    """Each has its socket, its sequence numbers and its counts. EF and CS1 are the small echoes of the two classes."""

    EF = 0
    CS1 = 1
    FULL_SIZE = 2


_KINDS, _LANES = tuple(Kind), tuple(Lane)


class Packet(NamedTuple):
    kind: Kind
    lane: Lane
    stream: int
    """Which of the asker's probes: each counts its own sequence, whichever agent it reaches."""
    site: bytes
    sender: bytes
    """The incarnation: 8 random bytes of the process that sent this packet."""
    addressee: bytes
    """Of a reply: the asker's incarnation. Of a request: NOBODY, who answers is not known before."""
    sequence: int
    received: int
    """Of a reply: how many requests of this stream and lane the responder has received."""
    mtu: int
    """Bytes: the sender's own MTU towards the other end, 0 where it is not known."""
    largest: int
    """Of a reply: the largest request (bytes with the IP header) of this stream and lane in the last minute."""


class DroppedError(Exception):
    """A packet that is none of ours; `reason` is a label of the metric that counts it."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def tag(name: str) -> bytes:
    """A site or link name in four bytes."""
    return hashlib.sha256(name.encode()).digest()[:4]


def pack(packet: Packet, *, link: bytes, key: bytes, size: int = SIZE) -> bytes:
    """`size` is the UDP payload's, bytes."""
    body = _LAYOUT.pack(
        _MAGIC,
        _VERSION,
        packet.kind,
        packet.lane,
        packet.stream,
        packet.mtu,
        packet.largest,
        link,
        packet.site,
        packet.sender,
        packet.addressee,
        packet.sequence,
        packet.received,
    )
    body += bytes(size - SIZE)
    return body + _code(body, key)


def unpack(data: bytes, *, link: bytes, keys: Sequence[bytes]) -> tuple[Packet, bytes]:
    """Returns the packet and which of the keys it was made with. Raises DroppedError."""
    if len(data) < SIZE:
        raise DroppedError("malformed")
    magic, version, kind, lane, stream, mtu, largest, of_link, *rest = _LAYOUT.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or kind >= len(_KINDS) or lane >= len(_LANES):
        raise DroppedError("malformed")
    # Only for the count: a packet of another link has another key as well.
    if of_link != link:
        raise DroppedError("other_link")
    body, code = data[:-_CODE_BYTES], data[-_CODE_BYTES:]
    # Every key is tried, so that the time tells nothing about which one matched.
    matching = [key for key in keys if hmac.compare_digest(_code(body, key), code)]
    if not matching:
        raise DroppedError("unauthentic")
    site, sender, addressee, sequence, received = rest
    packet = Packet(_KINDS[kind], _LANES[lane], stream, site, sender, addressee, sequence, received, mtu, largest)
    return packet, matching[0]


def _code(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_CODE_BYTES]
