"""Server-sent events, as vLLM and OpenAI use them: `data:` lines, ended by `[DONE]`."""

from collections.abc import AsyncIterator

from aiohttp import StreamReader

DONE = b"data: [DONE]\n\n"
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


def event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


async def events(stream: StreamReader) -> AsyncIterator[bytes]:
    """The payload of each event, without the closing `[DONE]`.

    Raises EOFError when the stream ends without it: what came may not be the whole answer.
    """
    buffer = b""
    async for chunk in stream.iter_any():
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == b"[DONE]":
                await stream.read()  # to the very end: a connection with unread bytes is closed, not used again
                return
            yield payload
    raise EOFError("the stream ended without [DONE]")
