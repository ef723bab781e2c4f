"""What aiohttp refuses before any handler sees it (broken HTTP, giant headers): in the API's format, and unlogged.

aiohttp's own answer quotes what it could not read, and logs it with a traceback: that can be a key, or a prompt.
"""

from uuid import uuid4

import orjson
import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pdd_router.errors import ApiError
from pdd_router.origin import REQUEST_ID

_LOG = structlog.get_logger(__name__)


def answer_in_api_format() -> None:
    """For every server of this process."""
    RequestHandler.handle_error = _refuse  # type: ignore[method-assign]


def _refuse(
    self: RequestHandler,
    request: web.BaseRequest,
    status: int = 500,
    exc: BaseException | None = None,
    message: str | None = None,
) -> web.StreamResponse:
    del self, message
    number = uuid4().hex
    _LOG.warning("request refused", request_id=number, status=status, error=type(exc).__name__)
    if request.writer is not None and request.writer.output_size > 0:
        raise ConnectionError("an answer is out already")
    what, kind = f"this is no HTTP request that can be read ({type(exc).__name__})", "BadRequestError"
    if status >= 500:
        what, kind = f"internal error, see the router's log for {number}", "InternalServerError"
    body = orjson.dumps(ApiError(status, what, kind=kind).body())
    response = web.Response(body=body, status=status, headers={REQUEST_ID: number}, content_type="application/json")
    response.force_close()
    return response
