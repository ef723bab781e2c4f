"""What the routes that name leases have in common: request ids in, a method of every engine core, its answers out."""

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import State

from pdd_engine.plugins.errors import error_response

MOST_IDS = 1024
LONGEST_ID = 512


class BodyError(ValueError):
    """A body that makes no sense: says which part, and what was expected."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class LeaseRoute:
    """A vLLM endpoint plugin of every engine: `POST path {"request_ids": [...]}`."""

    required_tasks = ("generate",)
    name: str
    path: str
    utility: str
    """The engine core's method. It takes the ids."""

    def told(self, ids: Sequence[str], answers: Sequence[Any]) -> dict[str, Any]:
        """The response's body. One answer for each engine core, none where there are no ids."""
        raise NotImplementedError

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_route(self.path, self._answer, methods=["POST"], response_model=None)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        state.pdd_engine_client = engine_client

    async def _answer(self, request: Request) -> JSONResponse:
        try:
            ids = request_ids(await request.body())
        except BodyError as error:
            return error_response(400, str(error), error.param)
        client = request.app.state.pdd_engine_client
        try:
            # One engine core each with data parallelism; a lease is known to one of them.
            answers = await client.engine_core.call_utility_all_async(self.utility, ids) if ids else []
        except Exception as error:
            return error_response(503, f"the engine core does not take leases: {error}")
        return JSONResponse(self.told(ids, answers))


def request_ids(body: bytes) -> list[str]:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BodyError(f"the body is a {type(message).__name__}: expected an object")
    ids = message.get("request_ids")
    if not isinstance(ids, list) or not all(isinstance(each, str) and 0 < len(each) <= LONGEST_ID for each in ids):
        expected = f"expected a list of strings of 1 to {LONGEST_ID} characters"
        raise BodyError(f"request_ids: {expected}", "request_ids")
    if len(ids) > MOST_IDS:
        raise BodyError(f"request_ids has {len(ids)} entries: expected at most {MOST_IDS}", "request_ids")
    return list(dict.fromkeys(ids))
