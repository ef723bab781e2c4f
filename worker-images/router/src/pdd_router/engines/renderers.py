"""The renderers: vLLM's own API servers, whose engine core is this router.

A client's request goes to a renderer as it is. What the renderer would send to its engine core comes back here over a
WebSocket, as work for the pipelines; the tokens that they make go the other way (docs/design/contracts.md).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

import orjson
import structlog
from aiohttp import ClientResponse, ClientSession, ClientWebSocketResponse, WSMsgType
from pydantic import ValidationError

from pdd_router import timeouts
from pdd_router.engines.client import Work, expect_ok, failures_named
from pdd_router.engines.facts import RendererFacts
from pdd_router.engines.pool import Endpoint
from pdd_router.errors import ApiError, UnavailableError, UpstreamError

_LOG = structlog.get_logger(__name__)
_SESSION_HEADER = "X-PDD-Session"
_RETRY_SECONDS = 0.5
_SESSION = re.compile(r'\s*{\s*"add"\s*:\s*{\s*"session"\s*:\s*"([^"]+)"')
# A renderer that does not answer a WebSocket ping for half of this is gone for us, and its requests with it.
_HEARTBEAT_SECONDS = 20.0


class Core(Protocol):
    """What a renderer takes for its engine core, for one client request."""

    def add(self, work_id: str, work: Work) -> None: ...

    def abort(self, work_id: str) -> None: ...

    def lost(self, error: ApiError) -> None: ...


class Renderer:
    """One renderer pod and the channel to it."""

    def __init__(self, session: ClientSession, endpoint: Endpoint):
        self.name = endpoint.name
        self.facts: RendererFacts | None = None
        self._url = endpoint.url
        self._session = session
        self._channel = ""
        self._cores: dict[str, Core] = {}
        self._session_of: dict[str, str] = {}
        self._outputs: list[Mapping[str, Any]] = []
        self._something_to_send = asyncio.Event()

    @property
    def open(self) -> bool:
        return bool(self._channel)

    @property
    def in_flight(self) -> int:
        return len(self._cores)

    async def keep_open(self) -> None:
        """Until cancelled."""
        last = ""
        while True:
            try:
                async with failures_named(self.name):
                    await self._serve()
            except ApiError as error:
                if error.message != last:
                    _LOG.warning("renderer's channel is closed", renderer=self.name, error=error.message)
                last = error.message
            except Exception:
                # A bug of ours or of the renderer's must not leave it without its engine core.
                _LOG.exception("renderer's channel is closed", renderer=self.name)
            await asyncio.sleep(_RETRY_SECONDS)

    @asynccontextmanager
    async def asked(
        self, path: str, body: bytes, headers: Mapping[str, str], core: Core
    ) -> AsyncIterator[ClientResponse]:
        """A client's request at the renderer, which gives its work to `core`.

        Raises UnavailableError, UpstreamError.
        """
        if not self.open:
            raise UnavailableError(f"renderer {self.name} is gone")
        session = f"{self._channel}/{uuid4().hex}"
        self._cores[session] = core
        try:
            async with (
                failures_named(self.name),
                self._session.post(
                    self._url + path,
                    data=body,
                    headers={**headers, _SESSION_HEADER: session},
                    timeout=timeouts.RENDERER,
                ) as response,
            ):
                yield response
        finally:
            del self._cores[session]

    def send(self, output: Mapping[str, Any]) -> None:
        """An output of a work, `id` among its keys; what comes while another is sent travels together."""
        self._outputs.append(output)
        self._something_to_send.set()

    async def _serve(self) -> None:
        async with self._session.get(f"{self._url}/pdd/v1/facts", timeout=timeouts.CONTROL) as response:
            await expect_ok(response, self.name)
            try:
                self.facts = RendererFacts.model_validate_json(await response.read())
            except ValidationError as error:
                raise UpstreamError(self.name, f"facts of another version? {error}") from None
        channel = uuid4().hex
        async with self._session.ws_connect(
            f"{self._url}/pdd/v1/core?channel={channel}", max_msg_size=0, heartbeat=_HEARTBEAT_SECONDS
        ) as socket:
            self._outputs.clear()
            self._channel = channel
            _LOG.info("renderer", renderer=self.name, facts=self.facts)
            sender = asyncio.create_task(self._send_outputs(socket))
            try:
                async for message in socket:
                    if message.type == WSMsgType.TEXT:
                        self._read(message.data)
                raise UpstreamError(self.name, f"closed the channel: {socket.close_code}")
            finally:
                self._channel = ""
                sender.cancel()
                lost = UpstreamError(self.name, "the renderer was lost in the middle of the request")
                for core in list(self._cores.values()):
                    core.lost(lost)
                self._session_of.clear()

    async def _send_outputs(self, socket: ClientWebSocketResponse) -> None:
        while True:
            await self._something_to_send.wait()
            self._something_to_send.clear()
            outputs, self._outputs = self._outputs, []
            await socket.send_str(orjson.dumps(outputs).decode())

    def _read(self, text: str) -> None:
        try:
            message = orjson.loads(text)
        except orjson.JSONDecodeError:
            # vLLM's JSON takes what ours does not: a client's field that is nested a thousand deep. Its session comes
            # first in the message, and the other requests of the renderer have nothing to do with it.
            found = _SESSION.match(text)
            core = self._cores.get(found[1]) if found else None
            if core is None:
                raise
            core.lost(ApiError(400, "a field of the request is nested too deeply to be passed on"))
            return
        self._received(message)

    def _received(self, message: dict[str, Any]) -> None:
        if "add" in message:
            added = message["add"]
            core = self._cores.get(added["session"])
            if core is None:
                return  # its client left meanwhile, and its HTTP request is closed
            self._session_of[added["id"]] = added["session"]
            core.add(added["id"], Work(**added["request"]))
        for work_id in message.get("abort", ()):
            session = self._session_of.pop(work_id, None)
            if session in self._cores:
                self._cores[session].abort(work_id)

    def ended(self, work_id: str) -> None:
        """Nothing more will be sent for it."""
        self._session_of.pop(work_id, None)


class Renderers:
    """The renderer pods of this site. They keep nothing between requests."""

    def __init__(self, session: ClientSession):
        self._session = session
        self._renderers: dict[Endpoint, tuple[Renderer, asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        there = set(endpoints)
        for endpoint in self._renderers.keys() - there:
            renderer, channel = self._renderers.pop(endpoint)
            # A pod that is told to end finishes its answers: it needs its engine core for that.
            leaving = asyncio.create_task(_close_when_done(renderer, channel))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        for endpoint in there - self._renderers.keys():
            renderer = Renderer(self._session, endpoint)
            self._renderers[endpoint] = (renderer, asyncio.create_task(renderer.keep_open()))

    @property
    def open(self) -> list[Renderer]:
        return [renderer for renderer, _ in self._renderers.values() if renderer.open]

    def take(self) -> Renderer:
        """The idlest. Raises UnavailableError."""
        if not self.open:
            raise UnavailableError("no renderer is ready; see the deployment's status")
        return min(self.open, key=lambda renderer: renderer.in_flight)

    def close(self) -> None:
        self.update([])
        for leaving in self._leaving:
            leaving.cancel()


async def _close_when_done(renderer: Renderer, channel: asyncio.Task[None]) -> None:
    try:
        while renderer.open and renderer.in_flight:  # noqa: ASYNC110 - asked twice a second, once in a pod's life
            await asyncio.sleep(_RETRY_SECONDS)
    finally:
        channel.cancel()
