"""The way back to the client: one JSON body, or a stream of events. Errors take whichever is open."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from pdd_router import sse
from pdd_router.errors import ApiError
from pdd_router.front.record import Record


class Outbound:
    def __init__(self, http: web.Request, record: Record):
        self._http = http
        self._record = record
        self._headers = {"X-Request-Id": record.request_id}
        self._stream: web.StreamResponse | None = None

    async def event(self, chunk: Mapping[str, Any] | bytes) -> None:
        """Opens the stream with the first one, so that nothing is promised before there is a token."""
        if self._stream is None:
            self._stream = web.StreamResponse(headers={**sse.HEADERS, **self._headers})
            await self._stream.prepare(self._http)
        await self._stream.write(sse.event(chunk if isinstance(chunk, bytes) else orjson.dumps(chunk)))

    async def end(self) -> web.StreamResponse:
        """Closes the stream that `event` opened. Raises RuntimeError when there was no event."""
        if self._stream is None:
            raise RuntimeError("a stream ends before its first event")
        await self._stream.write(sse.DONE)
        await self._stream.write_eof()
        return self._stream

    def whole(self, body: Mapping[str, Any], status: int = 200) -> web.Response:
        return web.Response(
            body=orjson.dumps(body), status=status, headers=self._headers, content_type="application/json"
        )

    async def fail(self, error: ApiError) -> web.StreamResponse:
        if self._stream is None:
            return self.whole(error.body(), error.status)
        await self.event(error.body())
        return await self.end()
