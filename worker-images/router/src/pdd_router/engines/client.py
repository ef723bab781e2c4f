"""One engine: vLLM's token-in, token-out API and our routes beside it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ClientTimeout
from pydantic import ValidationError

from pdd_router import sse, timeouts
from pdd_router.engines.calls import Calls
from pdd_router.engines.facts import Facts
from pdd_router.errors import RefusedError, UnavailableError, UpstreamError

_GENERATE = "/inference/v1/generate"


@dataclass(frozen=True)
class Work:
    """What an engine is asked to do, less the KV it may read: as the renderer's `add` has it."""

    token_ids: list[int]
    sampling_params: Mapping[str, Any]
    model: str | None = None
    cache_salt: str | None = None
    priority: int = 0
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: Mapping[str, Any] | None = None

    def body(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "token_ids": self.token_ids,
            "sampling_params": self.sampling_params,
            "cache_salt": self.cache_salt,
            "priority": self.priority,
            "reasoning_ended": self.reasoning_ended,
            "reasoning_parser_kwargs": self.reasoning_parser_kwargs,
        }


@dataclass(frozen=True)
class Delta:
    """Tokens that an engine made, and whether and why it stopped with them.

    `logprobs` has an entry for each token where they were asked for.
    """

    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: list[dict[str, Any]] | None = None

    def first(self, count: int) -> "Delta":
        """The first tokens of it, which end nothing; itself where that is all of it."""
        if count >= len(self.token_ids):
            return self
        return Delta(self.token_ids[:count], logprobs=self.logprobs[:count] if self.logprobs is not None else None)


@dataclass(frozen=True)
class Generated:
    """A whole, non-streamed answer of an engine."""

    token_ids: list[int]
    cached_tokens: int
    kv_transfer_params: dict[str, Any] | None
    prompt_logprobs: list[Any] | None


async def expect_ok(response: ClientResponse, who: str) -> None:
    """Raises RefusedError for what vLLM says the client did wrong, UnavailableError for what is not there now,
    UpstreamError for the rest."""
    if response.status == 200:
        return
    text = await response.text()
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        if 400 <= response.status < 500:
            raise RefusedError(response.status, answer)
        if response.status == 503:
            raise UnavailableError(f"{who}: {answer['error'].get('message')}")
    raise UpstreamError(who, f"HTTP {response.status}: {text[:300]}")


@asynccontextmanager
async def failures_named(who: str) -> AsyncIterator[None]:
    """Turns transport failures into UpstreamError, which says who failed."""
    try:
        yield
    except TimeoutError as error:
        raise UpstreamError(who, "no answer in time") from error
    except (ClientError, EOFError, OSError) as error:
        unreached = isinstance(error, ClientConnectorError)
        raise UpstreamError(who, f"{type(error).__name__}: {error}", took_it=not unreached) from error


class Engine:
    """A ready engine. `in_flight` counts the calls that it works on for this router."""

    def __init__(self, session: ClientSession, name: str, url: str):
        self.name = name
        self.url = url
        self.in_flight = 0
        self.aside = False
        """It hangs or is gone: no new work until it answers again."""
        self._facts: Facts | None = None
        self._session = session
        self._calls = Calls()
        self._answered_at = monotonic()
        self._clock_ahead: float | None = None

    @property
    def known(self) -> bool:
        return self._facts is not None

    @property
    def facts(self) -> Facts:
        """Raises UnavailableError before the engine has told them."""
        if self._facts is None:
            raise UnavailableError(f"engine {self.name} has not told its facts yet")
        return self._facts

    async def learn(self) -> None:
        """Fetches the facts once. Raises UpstreamError while the engine cannot tell them."""
        async with (
            failures_named(self.name),
            self._session.get(f"{self.url}/pdd/v1/facts", timeout=timeouts.CONTROL) as response,
        ):
            await expect_ok(response, self.name)
            try:
                self._facts = Facts.model_validate_json(await response.read())
            except ValidationError as error:
                raise UpstreamError(self.name, f"facts of another version? {error}") from None
        self._answered_at = monotonic()

    async def check(self) -> str | None:
        """Asks whether its core still turns. Returns why it must be put aside; None when it need not be.

        One that refuses connections is gone at once; one that does not answer may be in a long step, and gets time.
        """
        asked = monotonic()
        try:
            async with self._session.get(f"{self.url}/pdd/v1/alive", timeout=timeouts.ALIVE) as response:
                text = await response.read()
                if response.status != 200:
                    return f"HTTP {response.status} to /pdd/v1/alive"
        except ClientConnectorError as error:
            return f"cannot be reached: {error}"
        except (TimeoutError, ClientError, OSError):
            silent = monotonic() - self._answered_at
            return f"has not answered for {silent:.0f} s" if silent > timeouts.HUNG_SECONDS else None
        self._answered_at = monotonic()
        try:
            # The most that it can be ahead: what is so old by its clock is then at least as old by ours.
            self._clock_ahead = float(orjson.loads(text)["clock"]) - asked
        except (KeyError, TypeError, ValueError):
            return f"tells no clock at /pdd/v1/alive ({text[:80]!r}): does it run the router's version of pdd_engine?"
        return None

    def here(self, moment: float) -> float | None:
        """A moment of its monotonic clock by ours, or a little earlier; None while its clock is not known."""
        return None if self._clock_ahead is None else moment - self._clock_ahead

    def put_aside(self) -> None:
        """Ends the calls that wait for it: their requests go on elsewhere, or end with an error."""
        self.aside = True
        self._calls.break_off()

    def take_back(self) -> None:
        self.aside = False

    async def generate(
        self, work: Work, *, headers: Mapping[str, str], kv_transfer_params: Mapping[str, Any] | None = None
    ) -> Generated:
        body = work.body() | {"kv_transfer_params": kv_transfer_params, "stream": False}
        async with self._call(_GENERATE, headers, body, timeouts.WHOLE_ANSWER) as response:
            answer = orjson.loads(await response.read())
        choice = answer["choices"][0]
        _refuse_broken(self.name, choice["finish_reason"])
        details = answer["usage"].get("prompt_tokens_details") or {}
        return Generated(
            choice["token_ids"],
            details.get("cached_tokens") or 0,
            answer["kv_transfer_params"],
            answer.get("prompt_logprobs"),
        )

    async def stream(
        self, work: Work, *, headers: Mapping[str, str], kv_transfer_params: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[Delta, None]:
        """Closing the generator closes the connection, which makes vLLM abort the request."""
        body = work.body() | {"kv_transfer_params": kv_transfer_params, "stream": True}
        async with self._call(_GENERATE, headers, body, timeouts.STREAM) as response:
            async for payload in sse.events(response.content):
                yield parse_delta(self.name, payload)

    async def release(self, request_ids: Sequence[str]) -> None:
        """Gives leases back that nobody will read. Raises ApiError when the engine does not say that it did."""
        body = {"request_ids": list(request_ids)}
        async with self._call("/pdd/v1/release", {}, body, timeouts.CONTROL) as response:
            await response.read()

    async def forget(self, request_ids: Sequence[str]) -> list[str]:
        """Leases that it is not to read. Returns those that it has not begun to. Raises ApiError."""
        body = {"request_ids": list(request_ids)}
        async with self._call("/pdd/v1/forget", {}, body, timeouts.CONTROL) as response:
            unseen: list[str] = orjson.loads(await response.read())["unseen"]
        return unseen

    @asynccontextmanager
    async def _call(
        self, path: str, headers: Mapping[str, str], body: Mapping[str, Any], limits: ClientTimeout
    ) -> AsyncIterator[ClientResponse]:
        """Leaving it closes the connection unless the answer was read to its end."""
        self.in_flight += 1
        try:
            async with failures_named(self.name):
                post = self._session.post(
                    self.url + path,
                    data=orjson.dumps(body),
                    headers={"Content-Type": "application/json", **headers},
                    timeout=limits,
                )
                response = await self._calls.begun(post)
                async with response:
                    with self._calls.reading(response):
                        await expect_ok(response, self.name)
                        yield response
        finally:
            self.in_flight -= 1


def parse_delta(who: str, payload: bytes) -> Delta:
    """Raises UpstreamError for an error inside the stream and for an answer that the engine gave up."""
    event = orjson.loads(payload)
    if "error" in event:
        error = event["error"]
        raise UpstreamError(who, str(error.get("message", error) if isinstance(error, Mapping) else error))
    choice = event["choices"][0]
    _refuse_broken(who, choice["finish_reason"])
    logprobs = choice.get("logprobs")
    return Delta(
        choice["token_ids"],
        choice["finish_reason"],
        choice["stop_reason"],
        logprobs["content"] if logprobs is not None else None,
    )


def _refuse_broken(who: str, finish_reason: str | None) -> None:
    # vLLM ends requests with 200 and one of these when it shuts down or loses a KV transfer.
    if finish_reason in ("abort", "error"):
        raise UpstreamError(who, f"ended the request with finish_reason {finish_reason!r}")
