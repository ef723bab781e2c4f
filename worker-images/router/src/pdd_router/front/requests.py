"""A client's request, as far as the router reads it: the rest is vLLM's to judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from multidict import CIMultiDictProxy

from pdd_router.errors import ApiError
from pdd_router.line.site import Leased
from pdd_router.policy.features import blocks_handoff
from pdd_router.policy.pipeline import Pipeline

Route = Literal["chat/completions", "completions"]

PIPELINE_HEADER = "X-PDD-Pipeline"
TRACE_HEADER = "X-PDD-Trace"


@dataclass(frozen=True)
class ClientRequest:
    route: Route
    body: dict[str, Any]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    cannot_hand_off: str | None
    forced: Pipeline | None
    trace: bool

    def with_ids(self, prompts: Sequence[Leased]) -> dict[str, Any]:
        """The body with the ids that P prefilled: MD must not tokenize for itself."""
        if self.route == "completions":
            ids = [prompt.token_ids for prompt in prompts]
            return self.body | {"prompt": ids if len(ids) > 1 else ids[0]}
        return self.body | {"kv_transfer_params": {"prompt_token_ids": prompts[0].token_ids}}


def parse(route: Route, raw: bytes, headers: CIMultiDictProxy[str], *, overrides_allowed: bool) -> ClientRequest:
    """Raises ApiError 400 for what no engine could answer either, 403 for overrides that are not allowed."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(body).__name__}")
    for field in ("kv_transfer_params", "ec_transfer_params"):
        if body.get(field) is not None:
            raise ApiError(400, f"{field} is for engines among themselves; leave it out", param=field)
    for header in (PIPELINE_HEADER, TRACE_HEADER):
        if header in headers and not overrides_allowed:
            raise ApiError(
                403,
                f"header {header} is refused: the PDDDeployment has spec.routing.requestOverrides: Refused",
                kind="PermissionDeniedError",
            )
    cannot_hand_off = blocks_handoff(body)
    forced = _forced(headers)
    if forced is Pipeline.RELAY and cannot_hand_off is not None:
        raise ApiError(
            400,
            f"header {PIPELINE_HEADER}: {forced}, but {cannot_hand_off!r} must stay on one engine",
            param=cannot_hand_off,
        )
    options = body.get("stream_options")
    return ClientRequest(
        route=route,
        body=body,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        return_token_ids=body.get("return_token_ids") is True,
        cannot_hand_off=cannot_hand_off,
        forced=forced,
        trace=headers.get(TRACE_HEADER, "").lower() == "on",
    )


def _forced(headers: CIMultiDictProxy[str]) -> Pipeline | None:
    wish = headers.get(PIPELINE_HEADER)
    if wish is None:
        return None
    try:
        return Pipeline(wish)
    except ValueError:
        raise ApiError(
            400, f"header {PIPELINE_HEADER}: {wish!r}; expected {' or '.join(p.value for p in Pipeline)}"
        ) from None
