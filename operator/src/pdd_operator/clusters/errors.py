"""How talking to a cluster fails."""


class UnreachableError(Exception):
    """The cluster gave no answer; nothing is known of what it holds."""


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ConflictError(ApiError):
    """The object changed since it was read, or another field manager holds a field."""
