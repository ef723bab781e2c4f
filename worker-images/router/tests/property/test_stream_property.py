"""Server-sent events survive any cutting of the bytes."""

from itertools import pairwise
from unittest.mock import Mock

import pytest
from aiohttp import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from pdd_router import sse


def reader(pieces: list[bytes]) -> StreamReader:
    stream = StreamReader(Mock(_reading_paused=False), limit=2**16)
    for piece in pieces:
        stream.feed_data(piece)
    stream.feed_eof()
    return stream


# JSON on one line, which is what engines send.
payloads = st.lists(
    st.binary(min_size=1).filter(lambda b: not set(b) & set(b"\r\n \t\x0b\x0c") and b != b"[DONE]"),
    max_size=8,
)


@given(payloads, st.lists(st.integers(0, 200), max_size=10))
async def test_events_come_out_whole(sent: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(sse.event(p) for p in sent) + sse.DONE
    edges = sorted({0, len(whole), *(c % (len(whole) + 1) for c in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    assert [p async for p in sse.events(reader(pieces))] == sent


async def test_a_stream_that_just_ends_is_not_a_whole_answer() -> None:
    with pytest.raises(EOFError):
        [p async for p in sse.events(reader([sse.event(b"1")]))]
