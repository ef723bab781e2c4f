"""A session against an API server that misbehaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from pdd_operator.clusters.errors import ApiError, ConflictError, UnreachableError
from pdd_operator.clusters.kinds import CONFIG_MAP
from pdd_operator.clusters.session import Session

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers with whatever the test put there, and keeps what was asked."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        return await self.answers.pop(0)(request)


def _answer(status: int, body: object, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return handler


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def session(server: Server) -> AsyncIterator[Session]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    session = Session("member", ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
    yield session
    await session.close()
    await runner.cleanup()


async def test_a_busy_server_is_asked_again(server: Server, session: Session) -> None:
    busy = _answer(429, {"message": "too many"}, **{"Retry-After": "0"})
    server.answers = [busy, busy, _answer(200, {"kind": "ConfigMap"})]
    assert await session.get(CONFIG_MAP, "x", "ns") == {"kind": "ConfigMap"}
    assert len(server.asked) == 3


async def test_one_that_stays_busy_is_an_error(server: Server, session: Session) -> None:
    server.answers = [_answer(429, {"message": "too many"}, **{"Retry-After": "0"})] * 3
    with pytest.raises(ApiError, match="too many"):
        await session.get(CONFIG_MAP, "x", "ns")


async def test_errors_carry_the_servers_words(server: Server, session: Session) -> None:
    server.answers = [_answer(404, {}), _answer(409, {"message": "changed"}), _answer(403, {"message": "no"})]
    assert await session.get(CONFIG_MAP, "x", "ns") is None
    with pytest.raises(ConflictError, match="changed"):
        await session.merge(CONFIG_MAP, "x", "ns", {})
    with pytest.raises(ApiError, match="no") as refusal:
        await session.get(CONFIG_MAP, "x", "ns")
    assert refusal.value.status == 403


async def test_apply_names_its_manager_and_never_forces_unasked(server: Server, session: Session) -> None:
    server.answers = [_answer(200, {})] * 2
    body = {"metadata": {"name": "x", "namespace": "ns"}}
    await session.apply(CONFIG_MAP, body, force=False)
    await session.apply(CONFIG_MAP, body, force=True)
    path = "PATCH /api/v1/namespaces/ns/configmaps/x?fieldManager=pdd-operator&force="
    assert server.asked == [f"{path}false", f"{path}true"]


async def test_deleting_what_is_gone_or_replaced_is_done(server: Server, session: Session) -> None:
    found = {"metadata": {"name": "x", "namespace": "ns", "uid": "1"}}
    server.answers = [_answer(404, {}), _answer(409, {"message": "uid"}), _answer(403, {"message": "no"})]
    await session.delete(CONFIG_MAP, found)
    await session.delete(CONFIG_MAP, found)
    with pytest.raises(ApiError, match="no"):
        await session.delete(CONFIG_MAP, found)


async def test_an_answer_that_is_no_json(server: Server, session: Session) -> None:
    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    server.answers = [page]
    with pytest.raises(ApiError, match="did not answer in JSON"):
        await session.through_pod("ns", "front-1", 8000, "telemetry")
    assert server.asked == ["GET /api/v1/namespaces/ns/pods/front-1:8000/proxy/telemetry"]


async def test_a_pod_that_hangs_does_not_count_against_its_cluster(
    server: Server, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    monkeypatch.setattr("pdd_operator.clusters.session._POD_SECONDS", 0.05)
    server.answers = [hang] * 3
    for _ in range(3):
        with pytest.raises(UnreachableError, match="pod front-1 did not answer in time"):
            await session.through_pod("ns", "front-1", 8000, "telemetry")
    server.answers = [_answer(200, {"kind": "ConfigMap"})]
    assert await session.get(CONFIG_MAP, "x", "ns") == {"kind": "ConfigMap"}


async def test_after_two_failures_it_answers_at_once(server: Server, session: Session) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.answers = [hang_up] * 4
    for _ in range(2):
        with pytest.raises(UnreachableError):
            await session.merge(CONFIG_MAP, "x", "ns", {})
    asked = len(server.asked)
    with pytest.raises(UnreachableError, match="did not answer lately"):
        await session.merge(CONFIG_MAP, "x", "ns", {})
    assert len(server.asked) == asked


async def test_watch_yields_objects_until_the_server_complains(server: Server, session: Session) -> None:
    large = {"metadata": {"name": "large", "annotations": {"a": "x" * 600_000}}}

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in (
            {"type": "ADDED", "object": {"metadata": {"name": "small"}}},
            {"type": "MODIFIED", "object": large},
            {"type": "ERROR", "object": {"code": 410}},
            {"type": "ADDED", "object": {"metadata": {"name": "never"}}},
        ):
            await response.write(json.dumps(event).encode() + b"\n")
        await asyncio.sleep(0.2)
        return response

    server.answers = [_answer(200, {"metadata": {"resourceVersion": "7"}}), stream]
    names = [found["metadata"]["name"] async for found in session.watch(CONFIG_MAP, "ns", selector="a=b")]
    assert names == ["small", "large"]
    assert "resourceVersion=7" in server.asked[1]
    assert "labelSelector=a%3Db" in server.asked[1]


async def test_a_watch_that_breaks_is_unreachable(server: Server, session: Session) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "ADDED", "obj\n')
        return response

    server.answers = [_answer(200, {"metadata": {"resourceVersion": "7"}}), broken]
    with pytest.raises(UnreachableError):
        async for _ in session.watch(CONFIG_MAP, "ns"):
            pass
