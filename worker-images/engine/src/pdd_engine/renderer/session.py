"""Which router a request came from: its answer's tokens come over that router's channel.

Plain ASGI. A middleware of starlette's would put a queue between vLLM and the server, and with it change when vLLM
hears that a client left.
"""

from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PATHS = ("/v1/chat/completions", "/v1/completions")
HEADER = "x-pdd-session"

current: ContextVar[str] = ContextVar("pdd_session")
"""The header of the request that is being answered. Tasks inherit it, so it is there wherever vLLM adds a request."""


def channel_of(session: str) -> str:
    return session.partition("/")[0]


class SessionMiddleware:
    """Refuses a request whose channel is not open, before its body is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        session = Headers(scope=scope).get(HEADER, "")
        if scope["app"].state.pdd_core.is_open(channel_of(session)):
            token = current.set(session)
            try:
                await self._app(scope, receive, send)
            finally:
                current.reset(token)
        else:
            await _unavailable(session)(scope, receive, send)


def _unavailable(session: str) -> JSONResponse:
    if session:
        message = f"No channel {channel_of(session)!r} of a router is open here: try again."
    else:
        message = f"The renderer answers for a router only: the header {HEADER} is missing."
    error: dict[str, Any] = {"message": message, "type": "ServiceUnavailableError", "param": None, "code": 503}
    return JSONResponse({"error": error}, status_code=503)
