import pytest

from pdd_link.packet import NOBODY, SIZE, DroppedError, Kind, Lane, Packet, pack, tag, unpack

LINK, KEY, OLD = tag("a-b"), b"k" * 32, b"o" * 32
REQUEST = Packet(
    kind=Kind.REQUEST, lane=Lane.CS1, stream=3, site=tag("site-a"), sender=b"12345678", addressee=NOBODY,
    sequence=7, received=0, mtu=1500, largest=0,
)  # fmt: skip
SEALED = pack(REQUEST, link=LINK, key=KEY)


def test_a_small_packet_has_sixty_bytes_and_a_large_one_what_is_asked() -> None:
    assert len(SEALED) == SIZE == 60
    assert len(pack(REQUEST, link=LINK, key=KEY, size=1472)) == 1472


@pytest.mark.parametrize("size", [SIZE, 1472])
@pytest.mark.parametrize("key", [KEY, OLD])
def test_it_comes_out_as_it_went_in_and_tells_its_key(size: int, key: bytes) -> None:
    sent = REQUEST._replace(kind=Kind.REPLY, addressee=b"abcdefgh", received=9, largest=1400)
    assert unpack(pack(sent, link=LINK, key=key, size=size), link=LINK, keys=[KEY, OLD]) == (sent, key)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"GET / HTTP/1.1\r\n" * 10, "malformed"),
        (SEALED[:-1], "malformed"),
        (SEALED[:2] + b"\x02" + SEALED[3:], "malformed"),  # another version
        (SEALED[:3] + b"\x02" + SEALED[4:], "malformed"),  # no such kind
        (SEALED[:4] + b"\x03" + SEALED[5:], "malformed"),  # no such lane
        (pack(REQUEST, link=tag("a-c"), key=KEY), "other_link"),
        (pack(REQUEST, link=LINK, key=b"s" * 32), "unauthentic"),
        (SEALED[:20] + b"!" + SEALED[21:], "unauthentic"),
        (SEALED + b"\0", "unauthentic"),
        (pack(REQUEST, link=LINK, key=KEY, size=100)[:-1], "unauthentic"),
    ],
)
def test_what_is_not_ours_is_dropped_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DroppedError) as dropped:
        unpack(data, link=LINK, keys=[KEY])
    assert dropped.value.reason == reason
