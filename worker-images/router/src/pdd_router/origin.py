"""What a call says about the request that it is for: its id and, where the client sent one, its trace context."""

import re
from collections.abc import Mapping
from uuid import uuid4

REQUEST_ID = "X-Request-Id"
_TRACE_CONTEXT = ("traceparent", "tracestate")


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own, where it can stand in a header, a log and an engine's request id; else a new one."""
    wish = headers.get(REQUEST_ID, "")
    return wish if re.fullmatch(r"[\w.:-]{1,128}", wish, re.ASCII) else uuid4().hex


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a call that the calls it leads to carry too: W3C trace context and the request's id."""
    return {name: headers[name] for name in (REQUEST_ID, *_TRACE_CONTEXT) if name in headers}
