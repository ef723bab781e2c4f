"""Errors in the format that OpenAI clients read: `{"error": {"message", "type", "param", "code"}}`."""

from typing import Any


class ApiError(Exception):
    """A request ends with this status and this body. `code` is the HTTP status, as vLLM has it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "BadRequestError",
        param: str | None = None,
        retry_after: int | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.retry_after = retry_after
        """Seconds after which trying again may work; for the header Retry-After."""

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


class RefusedError(ApiError):
    """vLLM refused the request and said why, in the right format: its answer goes on as it is."""

    def __init__(self, status: int, answer: dict[str, Any]):
        super().__init__(status, str(answer))
        self.answer = answer

    def body(self) -> dict[str, Any]:
        return self.answer


class UnavailableError(ApiError):
    """Something the request needs is not there now; trying again later may work."""

    def __init__(self, message: str):
        super().__init__(503, message, kind="ServiceUnavailableError", retry_after=5)


class OverloadedError(ApiError):
    """More than can be worked on now: nothing was begun."""

    STATUS = 429

    def __init__(self, message: str, *, retry_after: int = 1):
        super().__init__(self.STATUS, message, kind="RateLimitError", retry_after=retry_after)


class LeaseTooOldError(ApiError):
    """A pull came too late to be safe: P may have given the blocks away. The front leases anew."""

    STATUS = 409

    def __init__(self, request_id: str):
        super().__init__(self.STATUS, f"the lease of {request_id} is too old to pull from", kind="LeaseTooOldError")


class UpstreamError(ApiError):
    """A part failed; `who` is an engine, renderer or site by name. `took_it`: it may have begun to work on the
    request, which may be why it failed."""

    def __init__(self, who: str, what: str, *, took_it: bool = True):
        super().__init__(502, f"{who}: {what}", kind="UpstreamError")
        self.who = who
        self.took_it = took_it
