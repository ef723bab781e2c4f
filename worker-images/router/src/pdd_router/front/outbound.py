"""The way back to the client: one JSON body, or a stream of events. Errors take whichever is open."""

import asyncio
import socket
import struct

import orjson
from aiohttp import web

from pdd_router import sse, timeouts
from pdd_router.errors import ApiError
from pdd_router.front.record import Record
from pdd_router.origin import REQUEST_ID


class Outbound:
    def __init__(self, http: web.Request, record: Record):
        self._http = http
        self._headers = {REQUEST_ID: record.request_id}
        self._stream: web.StreamResponse | None = None

    async def write(self, chunk: bytes) -> None:
        """Opens the stream with the first one, so that nothing is promised before there is a token.

        Raises ConnectionError when the client is gone or has stopped reading.
        """
        if self._stream is None:
            self._stream = web.StreamResponse(headers={**sse.HEADERS, **self._headers})
            await self._stream.prepare(self._http)
        try:
            async with asyncio.timeout(timeouts.CLIENT_READS_SECONDS):
                await self._stream.write(chunk)
        except TimeoutError:
            if self._http.transport is not None:
                _reset(self._http.transport)
            raise ConnectionResetError("the client has stopped reading") from None

    async def close(self) -> web.StreamResponse:
        """Raises RuntimeError when nothing was written."""
        if self._stream is None:
            raise RuntimeError("a stream ends before its first event")
        await self._stream.write_eof()
        return self._stream

    def whole(self, body: bytes, status: int, headers: dict[str, str] | None = None) -> web.Response:
        return web.Response(
            body=body, status=status, headers=self._headers | (headers or {}), content_type="application/json"
        )

    async def fail(self, error: ApiError) -> web.StreamResponse:
        if self._stream is None:
            return self.whole(orjson.dumps(error.body()), error.status, error.headers)
        await self.write(sse.event(orjson.dumps(error.body())) + sse.DONE)
        return await self.close()


def _reset(transport: asyncio.Transport) -> None:
    """Ends a connection with what is in its buffers: the kernel would keep megabytes for minutes to deliver them."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
