"""What a client's headers and the deployment's settings say about one request."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from pdd_router.config import Routing
from pdd_router.errors import ApiError
from pdd_router.origin import REQUEST_ID, passed_on
from pdd_router.policy.pipeline import Pipeline

PIPELINE_HEADER = "X-PDD-Pipeline"
CUT_HEADER = "X-PDD-Cut"
TRACE_HEADER = "X-PDD-Trace"
_LONGEST_NUMBER = 9


@dataclass
class Ask:
    """`headers` go to the engines. `cut_at`: hand over after exactly that many tokens of RLD's."""

    routing: Routing
    headers: dict[str, str]
    forced: Pipeline | None = None
    cut_at: int | None = None
    trace: bool = False
    _prefills: dict[int, asyncio.Lock] = field(default_factory=dict)

    @asynccontextmanager
    async def one_prefill_of(self, token_ids: Sequence[int]) -> AsyncIterator[None]:
        """The choices of one request share a prompt: the first computes it, the others find it in P's cache."""
        async with self._prefills.setdefault(hash(tuple(token_ids)), asyncio.Lock()):
            yield


def asked(headers: Mapping[str, str], request_id: str, routing: Routing) -> Ask:
    """Raises ApiError 403 for overrides that are not allowed, 400 for ones that make no sense."""
    for header in (PIPELINE_HEADER, CUT_HEADER, TRACE_HEADER):
        if header in headers and routing.request_overrides != "Allowed":
            raise ApiError(
                403,
                f"header {header} is refused: the PDDDeployment has spec.routing.requestOverrides: Refused",
                kind="PermissionDeniedError",
            )
    cut_at = _cut_at(headers)
    forced = _forced(headers)
    if cut_at is not None and forced is not Pipeline.RELAY:
        raise ApiError(400, f"header {CUT_HEADER} needs {PIPELINE_HEADER}: {Pipeline.RELAY}")
    # Engines see an id of this request alone, whatever ids clients choose: leases are given back by it.
    own = {REQUEST_ID: f"{request_id}.{uuid4().hex[:8]}"}
    return Ask(
        routing,
        headers=passed_on(headers) | own,
        forced=forced,
        cut_at=cut_at,
        trace=headers.get(TRACE_HEADER, "").lower() == "on",
    )


def _forced(headers: Mapping[str, str]) -> Pipeline | None:
    wish = headers.get(PIPELINE_HEADER)
    if wish is None:
        return None
    try:
        return Pipeline(wish)
    except ValueError:
        raise ApiError(
            400, f"header {PIPELINE_HEADER}: {wish!r}; expected {' or '.join(p.value for p in Pipeline)}"
        ) from None


def _cut_at(headers: Mapping[str, str]) -> int | None:
    wish = headers.get(CUT_HEADER)
    if wish is None:
        return None
    if not wish.isascii() or not wish.isdecimal() or len(wish) > _LONGEST_NUMBER:
        raise ApiError(400, f"header {CUT_HEADER}: {wish!r}; expected a number of tokens")
    return int(wish)
