"""Errors as OpenAI's API and vLLM's own routes tell them."""

from http import HTTPStatus

from fastapi.responses import JSONResponse

TYPES = {400: "BadRequestError", 501: "NotImplementedError", 503: "ServiceUnavailableError"}


def error_response(status: int, message: str, param: str | None = None) -> JSONResponse:
    error = {"message": message, "type": TYPES.get(status, HTTPStatus(status).phrase), "param": param, "code": status}
    return JSONResponse({"error": error}, status)
