"""Over real sockets: clients that leave, routers that go, come again, or talk nonsense."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

import uvicorn
import websockets

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
LEFT_SECONDS = 0.5


class Router:
    """The other end of a channel."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    async def receive(self) -> Any:
        return json.loads(await asyncio.wait_for(self.socket.recv(), 5))

    async def added(self) -> Any:
        return (await self.receive())["add"]

    async def send(self, *outputs: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(outputs))

    async def closed(self) -> tuple[int, str]:
        with pytest.raises(websockets.ConnectionClosed):
            await asyncio.wait_for(self.socket.recv(), 5)
        return self.socket.close_code, self.socket.close_reason


class Server:
    def __init__(self, renderer: Any, port: int) -> None:
        self.renderer, self.address = renderer, f"127.0.0.1:{port}"

    @asynccontextmanager
    async def router(self, name: str = "router-1") -> AsyncIterator[Router]:
        async with websockets.connect(f"ws://{self.address}/pdd/v1/core?channel={name}", compression=None) as socket:
            while not self.renderer.core.is_open(name):
                await asyncio.sleep(0.001)
            yield Router(socket)

    @asynccontextmanager
    async def client(self, session: str = "router-1/1") -> AsyncIterator[httpx.AsyncClient]:
        headers = {"x-pdd-session": session, "x-request-id": "q"}
        async with httpx.AsyncClient(base_url=f"http://{self.address}", headers=headers, timeout=10) as client:
            yield client

    async def holds_nothing(self) -> None:
        """All that was kept of requests is free again."""
        processor, core = self.renderer.app.state.engine_client.output_processor, self.renderer.core
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            kept = (processor.request_states, processor.parent_requests, processor.external_req_ids, core._requests)
            if not any(kept):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(kept)


@pytest.fixture(scope="module")
def server(renderer: Any) -> Iterator[Server]:
    # Its lifespan takes vLLM's state away at the end.
    uvicorn_server = uvicorn.Server(uvicorn.Config(renderer.app, port=0, lifespan="off", log_level="warning"))
    serving = renderer.loop.create_task(uvicorn_server.serve())

    async def started() -> int:
        while not uvicorn_server.started:
            await asyncio.sleep(0.01)
        port: int = uvicorn_server.servers[0].sockets[0].getsockname()[1]
        return port

    yield Server(renderer, renderer.run(started()))
    uvicorn_server.should_exit = True
    renderer.run(serving)


class TestAClientThatLeaves:
    @pytest.mark.parametrize("streams", [False, True])
    @pytest.mark.parametrize("tokens", [0, 3])
    @pytest.mark.parametrize(
        ("path", "body", "adds"),
        [
            ("chat/completions", CHAT, 1),
            ("chat/completions", CHAT | {"n": 2}, 2),
            ("completions", {"prompt": "Hi"}, 1),
            ("completions", {"prompt": ["Hi", "there"], "n": 2}, 4),
        ],
    )
    def test_ends_its_requests(
        self, server: Server, path: str, body: dict[str, Any], adds: int, tokens: int, streams: bool
    ) -> None:
        async def leaves() -> None:
            async with server.router() as router, server.client() as client:
                asking = asyncio.create_task(read(client, path, body | {"stream": streams}))
                ids = {(await router.added())["id"] for _ in range(adds)}
                for request_id in ids if tokens else ():
                    await router.send({"id": request_id, "token_ids": [100] * tokens})
                await asyncio.sleep(0.05)
                assert not asking.done()
                left = time.monotonic()
                asking.cancel()
                aborted: list[str] = []
                while len(aborted) < adds:
                    aborted += (await router.receive())["abort"]
                assert time.monotonic() - left < LEFT_SECONDS
                assert sorted(aborted) == sorted(ids)
                await server.holds_nothing()

        server.renderer.run(leaves())


async def read(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[str]:
    async with client.stream("POST", f"/v1/{path}", json=body) as response:
        return [f"{response.status_code}", *[line async for line in response.aiter_lines() if line]]


class TestARouterThatGoes:
    @pytest.mark.parametrize("streams", [False, True])
    @pytest.mark.parametrize("tokens", [0, 3])
    def test_its_requests_fail(self, server: Server, streams: bool, tokens: int) -> None:
        async def goes() -> None:
            async with server.router("router-2") as other, server.client("router-2/1") as elsewhere:
                async with server.router() as router, server.client() as client:
                    asking = asyncio.create_task(read(client, "chat/completions", CHAT | {"stream": streams, "n": 2}))
                    going_on = asyncio.create_task(read(elsewhere, "chat/completions", CHAT))
                    ids = [(await router.added())["id"] for _ in range(2)]
                    if tokens:
                        await router.send(*({"id": request_id, "token_ids": [100] * tokens} for request_id in ids))
                    request_id = (await other.added())["id"]
                    router.socket.transport.abort()
                    lines = await asyncio.wait_for(asking, 2)
                    assert (await read(client, "chat/completions", CHAT))[0] == "503"
                if streams:
                    assert lines[0] == "200"
                    assert lines[-1] == "data: [DONE]"
                    error = json.loads(lines[-2].removeprefix("data: "))["error"]
                else:
                    assert lines[0] == "500"
                    error = json.loads(lines[1])["error"]
                assert (error["code"], error["type"]) == (500, "InternalServerError")
                await other.send({"id": request_id, "token_ids": [100], "finish_reason": "length"})
                assert (await going_on)[0] == "200"
            await server.holds_nothing()

        server.renderer.run(goes())

    def test_and_comes_again_before_that_is_seen(self, server: Server) -> None:
        async def comes_again() -> None:
            async with server.router() as old, server.client() as client:
                lost = asyncio.create_task(read(client, "chat/completions", CHAT))
                await old.added()
                async with server.router() as new:
                    assert await old.closed() == (1008, "another connection came under this name")
                    assert (await lost)[0] == "500"
                    answered = asyncio.create_task(read(client, "chat/completions", CHAT))
                    await new.send({"id": (await new.added())["id"], "token_ids": [100], "finish_reason": "length"})
                    assert (await answered)[0] == "200"
            await server.holds_nothing()

        server.renderer.run(comes_again())


class TestARouterThatTalksNonsense:
    @pytest.mark.parametrize(
        ("message", "says"),
        [
            ("junk", "expected a list of outputs: JSON is malformed"),
            ('{"id": "a"}', "expected a list of outputs: Expected `array`, got `object`"),
            (b'[{"id": "a", "token_ids": []}]', "expected a text frame"),
            (
                json.dumps([{"id": "a", "token_ids": [], "finish_reason": "é" * 200}]),
                "expected a list of outputs: Invalid enum",
            ),
        ],
    )
    def test_loses_its_channel_and_no_other(self, server: Server, message: str | bytes, says: str) -> None:
        async def talks() -> None:
            async with server.router("router-2") as other, server.client("router-2/1") as elsewhere:
                going_on = asyncio.create_task(read(elsewhere, "chat/completions", CHAT))
                request_id = (await other.added())["id"]
                async with server.router() as router, server.client() as client:
                    asking = asyncio.create_task(read(client, "chat/completions", CHAT))
                    await router.added()
                    await router.socket.send(message)
                    code, reason = await router.closed()
                    assert code == 1007
                    assert reason.startswith(says)
                    assert (await asking)[0] == "500"
                    assert (await read(client, "chat/completions", CHAT))[0] == "503"
                await other.send({"id": request_id, "token_ids": [100], "finish_reason": "length"})
                assert (await going_on)[0] == "200"

        server.renderer.run(talks())

    @pytest.mark.parametrize("name", ["", "a/b"])
    def test_a_channel_needs_a_name(self, server: Server, name: str) -> None:
        async def connects() -> None:
            async with websockets.connect(f"ws://{server.address}/pdd/v1/core?channel={name}") as socket:
                assert (await Router(socket).closed())[0] == 1008
            assert not server.renderer.core.is_open(name)

        server.renderer.run(connects())

    def test_the_requests_of_another_are_not_its_own(self, server: Server) -> None:
        async def answers_for_another() -> None:
            async with server.router() as router, server.router("router-2") as other, server.client() as client:
                asking = asyncio.create_task(read(client, "completions", {"prompt": "Hi", "return_token_ids": True}))
                request_id = (await router.added())["id"]
                await other.send({"id": request_id, "token_ids": [300], "finish_reason": "length"})
                await asyncio.sleep(0.05)
                await router.send({"id": request_id, "token_ids": [100], "finish_reason": "length"})
                assert json.loads((await asking)[1])["choices"][0]["token_ids"] == [100]

        server.renderer.run(answers_for_another())


def test_a_router_that_does_not_read_holds_up_no_one(server: Server) -> None:
    async def is_stuck() -> None:
        async with server.router("stuck") as stuck, server.router() as router, server.client() as client:
            stuck.socket.transport.pause_reading()
            async with server.client("stuck/1") as waiting:
                held = [
                    asyncio.create_task(read(waiting, "completions", {"prompt": [[5] * 2000] * 50})) for _ in range(20)
                ]
                await asyncio.sleep(1)
                asking = asyncio.create_task(read(client, "completions", {"prompt": "Hi"}))
                await router.send({"id": (await router.added())["id"], "token_ids": [100], "finish_reason": "length"})
                assert (await asyncio.wait_for(asking, 2))[0] == "200"
                for task in held:
                    task.cancel()
                await asyncio.gather(*held, return_exceptions=True)
            stuck.socket.transport.abort()
        await server.holds_nothing()

    server.renderer.run(is_stuck())


def test_a_renderer_that_is_asked_to_leave_waits_for_its_answers(server: Server) -> None:
    async def leaves() -> None:
        engine = server.renderer.app.state.engine_client
        async with server.router() as router, server.client() as client:
            asking = asyncio.create_task(read(client, "completions", {"prompt": "Hi"}))
            request_id = (await router.added())["id"]
            leaving = asyncio.create_task(asyncio.to_thread(engine.shutdown, timeout=10))
            await asyncio.sleep(0.2)
            assert not leaving.done()
            await router.send({"id": request_id, "token_ids": [100], "finish_reason": "length"})
            assert (await asking)[0] == "200"
            await asyncio.wait_for(leaving, 1)
            asking = asyncio.create_task(read(client, "completions", {"prompt": "Hi"}))
            request_id = (await router.added())["id"]
            started = time.monotonic()
            await asyncio.to_thread(engine.shutdown, timeout=0.2)  # no longer than it has
            assert 0.2 <= time.monotonic() - started < 1
            await router.send({"id": request_id, "token_ids": [100], "finish_reason": "length"})
            assert (await asking)[0] == "200"

    server.renderer.run(leaves())


def test_an_output_handler_that_ended_is_seen_from_outside(server: Server) -> None:
    async def health(client: httpx.AsyncClient) -> int:
        return (await client.get("/health")).status_code

    async def ends() -> None:
        engine = server.renderer.app.state.engine_client
        async with server.client() as client:
            assert await health(client) == 200
            running = engine.output_handler
            engine.output_handler = asyncio.create_task(asyncio.sleep(0))
            await asyncio.sleep(0.01)
            assert await health(client) == 503
            engine.output_handler = running

    server.renderer.run(ends())
