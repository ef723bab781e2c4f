"""What breaks on the way never becomes a wrong answer."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from aiohttp import ClientTimeout

from pdd_e2e.simulated.engine import as_text, continuation
from pdd_router import timeouts
from pdd_router.errors import UpstreamError
from pdd_router.front.outbound import Outbound
from pdd_router.front.record import Record
from pdd_router.front.refusals import answer_in_api_format
from pdd_router.line import round_trip
from pdd_router.line.site import Site

PROMPT_IDS = list(range(100, 180))
PROMPT = " ".join(map(str, PROMPT_IDS))
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
RELAY = {"X-PDD-Pipeline": "P-RLD-MD"}
RIGHT = as_text(continuation(PROMPT_IDS, 12))


async def until(what: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.02)


async def streamed(sites: Any, body: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    async with (
        asyncio.timeout(30),
        sites.client.post(sites.url + "/v1/completions", json=body | {"stream": True}, headers=headers) as response,
    ):
        raw: str = (await response.read()).decode()
    assert response.status == 200
    assert raw.endswith("data: [DONE]\n\n")
    return raw


@pytest.mark.parametrize(
    "fault",
    [
        {"relay": {"dies_after_tokens": 0}},
        {"relay": {"dies_after_tokens": 3, "token_seconds": 0.01}, "main": {"pull_seconds": 0.2}},
        {"relay": {"token_seconds": 0.01}, "main": {"fails_pull": True, "pull_seconds": 0.05}},
    ],
    ids=["RLD dies before its first token", "RLD dies in its stream", "the transfer fails"],
)
async def test_one_of_two_decoders_is_enough(start: Any, fault: dict[str, Any]) -> None:
    sites = await start(**fault)
    status, body = await sites.complete(BODY, RELAY)
    assert (status, body["choices"][0]["text"]) == (200, RIGHT)


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
@pytest.mark.parametrize("end", ["killed", "error", "abort", "cut"])
async def test_an_answer_that_loses_md_goes_on_from_its_ids(start: Any, end: str, pipeline: str) -> None:
    """MD breaks after two tokens, again and again: each time two more are there."""
    sites = await start(main={"dies_after_tokens": 2, "ends_with": end}, relay={"token_seconds": 0.01})
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": pipeline, "X-PDD-Trace": "on"})
    assert (status, body["choices"][0]["text"]) == (200, RIGHT)
    assert body["pdd"]["trouble"]


async def test_what_cannot_go_on_elsewhere_ends_with_an_error(start: Any) -> None:
    sites = await start(main={"dies_after_tokens": 2}, tolerated_wait_millis=60_000)
    raw = await streamed(sites, BODY | {"sampling_params": {"frequency_penalty": 0.5}})
    assert '"error":' in raw
    assert "frequency_penalty" in raw
    assert '"finish_reason":"length"' not in raw


async def test_what_cannot_go_on_may_still_begin_again(start: Any) -> None:
    """Not a token was out."""
    sites = await start(main={"dies_after_tokens": 0}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(sites.complete(BODY | {"sampling_params": {"frequency_penalty": 0.5}}))
    await until(lambda: len(sites.main.requests) >= 2)
    sites.main.dies_after_tokens = None
    status, body = await answer
    assert (status, body["choices"][0]["text"]) == (200, RIGHT)


async def test_a_request_that_engines_fail_on_is_not_given_to_ever_more(start: Any) -> None:
    """It may be why they fail."""
    sites = await start(main={"dies_after_tokens": 0}, tolerated_wait_millis=60_000)
    status, body = await sites.complete(BODY)
    assert (status, body["error"]["type"]) == (502, "UpstreamError")
    assert sum(request["stream"] for request in sites.main.requests) == 3


async def test_an_answer_ends_on_rld_when_no_md_is_left(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "HUNG_SECONDS", 0.2)
    monkeypatch.setattr(timeouts, "ALIVE", ClientTimeout(total=0.2))
    sites = await start(main={"token_seconds": 0.05}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(sites.complete(BODY | {"max_tokens": 30}, {"X-PDD-Trace": "on"}))
    await until(lambda: len(sites.main.requests) == 2)
    await asyncio.sleep(0.3)
    sites.main.hangs = True
    status, body = await answer
    assert (status, body["choices"][0]["text"]) == (200, as_text(continuation(PROMPT_IDS, 30)))
    assert body["pdd"]["engines"]["relay"] == "r-0"
    assert body["pdd"]["eager_tokens"] > 0


async def test_a_site_that_falls_silent_is_cut_off(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections are open and nothing comes over them, pings neither: the answer ends on RLD."""
    monkeypatch.setattr(timeouts, "CUT_OFF_SECONDS", 3.0)
    monkeypatch.setattr(round_trip, "UNREACHABLE_AFTER_SECONDS", 1.5)
    sites = await start(main={"token_seconds": 0.05}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(sites.complete(BODY | {"max_tokens": 30}, {"X-PDD-Trace": "on"}))
    await until(lambda: len(sites.main.requests) == 2)

    async def no_answer(site: Site) -> None:
        raise UpstreamError(site.name, "no answer in time")

    monkeypatch.setattr(Site, "ping", no_answer)
    sites.main.hangs = True
    async with asyncio.timeout(15):
        status, body = await answer
    assert (status, body["choices"][0]["text"]) == (200, as_text(continuation(PROMPT_IDS, 30)))
    assert body["pdd"]["engines"]["relay"] == "r-0"


async def test_an_engine_that_hangs_is_put_aside_and_comes_back(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "HUNG_SECONDS", 0.2)
    monkeypatch.setattr(timeouts, "ALIVE", ClientTimeout(total=0.2))
    sites = await start(tolerated_wait_millis=60_000)
    sites.prefill.hangs = True
    begun = perf_counter()
    status, body = await sites.complete(BODY)
    assert status in (502, 503)
    assert "prefill" in body["error"]["message"] or "p-0" in body["error"]["message"]
    assert perf_counter() - begun < 10
    sites.prefill.hangs = False

    async def answers() -> bool:
        status, body = await sites.complete(BODY)
        return bool(status == 200 and body["choices"][0]["text"] == RIGHT)

    async with asyncio.timeout(10):
        while not await answers():
            await asyncio.sleep(0.1)


async def test_both_decoders_failing_is_a_clean_error(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "RECOVERY_SECONDS", 1.0)
    sites = await start(relay={"dies_after_tokens": 2}, main={"fails_pull": True, "pull_seconds": 0.1})
    status, body = await sites.complete(BODY, RELAY)
    assert status == 502
    assert body["error"]["type"] == "UpstreamError"


async def test_an_error_after_the_first_token_ends_the_stream_with_it(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "RECOVERY_SECONDS", 1.0)
    sites = await start(main={"dies_after_tokens": 2}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(streamed(sites, BODY | {"max_tokens": 500}))
    await until(lambda: len(sites.main.requests) >= 2)
    sites.main.fails_pull = True
    raw = await answer
    assert '"error":' in raw
    assert '"finish_reason":"length"' not in raw


async def test_a_renderer_that_is_lost_is_an_error_and_holds_nothing(start: Any) -> None:
    sites = await start(main={"token_seconds": 0.05}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(streamed(sites, BODY | {"max_tokens": 500}))
    await until(lambda: len(sites.main.requests) >= 2)
    await asyncio.sleep(0.2)
    for socket in list(sites.renderer.channels.values()):
        await socket.close()
    raw = await answer
    assert "renderer was lost" in raw
    await until(lambda: not sites.main.running)
    status, _ = await sites.complete(BODY)  # the channel is open again, or the refusal is clean
    assert status in (200, 503)


async def test_a_renderer_that_is_told_to_end_finishes_its_answers(start: Any) -> None:
    """Its endpoint leaves the Service first."""
    sites = await start(main={"token_seconds": 0.05}, tolerated_wait_millis=60_000)
    answer = asyncio.create_task(sites.complete(BODY | {"max_tokens": 30}))
    await until(lambda: sites.main.running > 0)
    sites.front._renderers.update([])
    assert (await sites.complete(BODY))[0] == 503
    status, body = await answer
    assert (status, body["choices"][0]["text"]) == (200, as_text(continuation(PROMPT_IDS, 30)))
    await until(lambda: not sites.renderer.channels)


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
@pytest.mark.parametrize(
    "slow",
    [
        {"prefill": {"prefill_seconds": 5}},
        {"main": {"pull_seconds": 5}, "relay": {"token_seconds": 0.05}},
        {"main": {"token_seconds": 0.05}, "relay": {"token_seconds": 0.05}},
    ],
    ids=["in prefill", "during the transfer", "in decode"],
)
async def test_a_client_that_leaves_frees_everything(start: Any, slow: dict[str, Any], pipeline: str) -> None:
    sites = await start(**slow)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await sites.complete(BODY | {"max_tokens": 200}, {"X-PDD-Pipeline": pipeline})
    engines = (sites.prefill, sites.relay, sites.main)
    await until(lambda: not any(engine.running for engine in engines))
    if "prefill" in slow:  # it may have been done just before it heard that nobody waits
        await until(lambda: len(sites.prefill.released) == 1)
        assert sites.prefill.released[0].startswith("generate-tokens-")


async def test_a_stop_string_ends_the_decode(start: Any) -> None:
    """The renderer found it: what MD would still make is for nobody."""
    sites = await start(main={"token_seconds": 0.02}, tolerated_wait_millis=60_000)
    raw = await streamed(sites, BODY | {"max_tokens": 500, "stop_after": 3})
    assert raw.count('"text"') == 3
    await until(lambda: not sites.main.running, seconds=2)


@pytest.mark.parametrize(
    ("raw", "headers", "status", "said"),
    [
        ('{"model": "m", "prompt": ""}', {}, 400, "prompt is empty"),
        ('{"model": "m", "prompt": "1"}', {"X-PDD-Pipeline": "P-RLD"}, 400, "P-MD or P-RLD-MD"),
        ('{"model": "m", "prompt": "1"}', {"X-PDD-Cut": "3"}, 400, "X-PDD-Pipeline"),
        ('{"model": "m", "prompt": "1"}', RELAY | {"X-PDD-Cut": "-3"}, 400, "number of tokens"),
    ],
)
async def test_bad_requests_end_at_the_door(
    start: Any, raw: str, headers: dict[str, str], status: int, said: str
) -> None:
    sites = await start()
    async with sites.client.post(sites.url + "/v1/completions", data=raw, headers=headers) as response:
        body = await response.json()
    assert response.status == status
    assert said in body["error"]["message"]
    assert body["error"]["code"] == status
    assert not sites.prefill.requests


async def test_a_body_too_large_is_refused_in_the_api_format(start: Any) -> None:
    sites = await start()
    raw = b'{"model": "m", "prompt": "' + b"1 " * (5 << 20) + b'"}'
    async with sites.client.post(sites.url + "/v1/completions", data=raw) as response:
        body = await response.json()
    assert (response.status, body["error"]["code"]) == (413, 413)


async def test_a_body_that_does_not_come_is_refused(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "CLIENT_SECONDS", 0.2)
    sites = await start()
    host, port = sites.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n")
    writer.close()
    assert b" 408 " in head


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "gzip"}, b"abcde", 400),
        ({"Content-Length": "9000000000"}, b"", 413),
        ({"Authorization": "Bearer SECRET\x01"}, b"{}", 400),
        ({"X-Big": "y" * 20_000}, b"{}", 400),
    ],
    ids=["no gzip", "giant length", "a key that is no header", "giant header"],
)
async def test_broken_http_is_refused_in_the_api_format_and_not_logged(
    start: Any, headers: dict[str, str], body: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer_in_api_format()
    sites = await start()
    host, port = sites.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    length = {} if "Content-Length" in headers else {"Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | length).items())
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode() + body)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        said = await reader.read(2000)
    writer.close()
    assert f" {status} ".encode() in head.split(b"\r\n")[0]
    assert orjson.loads(said)["error"]["code"] == status
    assert b"SECRET" not in said
    assert "SECRET" not in caplog.text


async def test_a_client_that_stops_reading_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buffers are full, and nothing more goes out."""
    monkeypatch.setattr(timeouts, "CLIENT_READS_SECONDS", 0.05)
    http = Mock()
    out = Outbound(http, Record("r", "completions"))
    out._stream = Mock(write=lambda _chunk: asyncio.Event().wait())
    with pytest.raises(ConnectionResetError, match="stopped reading"):
        await out.write(b"data: 1")
    http.transport.abort.assert_called_once_with()


@pytest.mark.parametrize("depth", [300, 1500])
async def test_a_field_nested_without_end_is_refused_alone(start: Any, depth: int) -> None:
    """vLLM's JSON takes it, ours does not; the renderer's other requests go on."""
    sites = await start(main={"token_seconds": 0.02}, tolerated_wait_millis=60_000)
    mine, other = (asyncio.create_task(sites.complete(BODY)) for _ in range(2))
    await until(lambda: sites.main.running == 2)
    [(channel, socket)] = sites.renderer.channels.items()
    session = sites.renderer.requests[0]["headers"]["X-PDD-Session"]
    nested = "[" * depth + "]" * depth
    request = '{"token_ids":[1],"sampling_params":{"max_tokens":1,"extra_args":{"x":' + nested + "}}}"
    await socket.send_str('{"add":{"session":"' + session + '","id":"deep","request":' + request + "}}")
    (status, body), (status_of_other, _) = await asyncio.gather(mine, other)
    assert (status, status_of_other) == (400, 200)
    assert "nested" in body["error"]["message"]
    assert list(sites.renderer.channels) == [channel]


async def test_more_answers_at_once_than_allowed_are_refused(start: Any) -> None:
    sites = await start(max_requests=3, tolerated_wait_millis=60_000, main={"token_seconds": 0.02})
    status, body = await sites.complete(BODY | {"prompt": [PROMPT] * 10})
    assert (status, body["error"]["code"]) == (400, 400)
    await until(lambda: not sites.main.running)


async def test_more_requests_than_allowed_are_sent_away(start: Any) -> None:
    sites = await start(max_requests=2, main={"token_seconds": 0.05}, tolerated_wait_millis=60_000)
    first = [asyncio.create_task(sites.complete(BODY)) for _ in range(2)]
    await until(lambda: sites.main.running >= 2)
    async with sites.client.post(sites.url + "/v1/completions", json=BODY) as response:
        body = await response.json()
    assert (response.status, body["error"]["code"]) == (429, 429)
    assert int(response.headers["Retry-After"]) >= 1
    assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]
    assert (await sites.complete(BODY))[0] == 200


async def test_an_md_without_room_lets_wait_and_then_sends_away(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 tokens are three blocks, and one for the answer: two of them fit."""
    monkeypatch.setattr("pdd_router.main.admission._PATIENCE_SECONDS", 0.5)
    sites = await start(main={"token_seconds": 0.1, "facts": {"kv_cache_tokens": 8 * 32}}, tolerated_wait_millis=60_000)
    answers = [asyncio.create_task(sites.complete(BODY)) for _ in range(3)]
    done = await asyncio.gather(*answers)
    assert sorted(status for status, _ in done) == [200, 200, 429]
    assert sites.main.most_running == 2
    await until(lambda: len(sites.prefill.released) == 1)


async def test_engines_of_another_model_are_not_used(start: Any) -> None:
    sites = await start(main={"facts": {"weights_fingerprint": "other"}}, tolerated_wait_millis=60_000)
    await until(lambda: bool(sites.renderer.channels))
    async with sites.client.get(sites.url + "/telemetry") as response:
        told = (await response.json())["compatibility"]
    [mismatch] = told["mismatches"]
    assert mismatch == {
        "field": "weights_fingerprint",
        "prefill": {"engine": "p-0", "value": "w"},
        "other": {"engine": "md-0", "site": "site-b", "role": "main-decode", "value": "other"},
    }
    for headers in (RELAY, {"X-PDD-Pipeline": "P-MD"}):
        status, body = await sites.complete(BODY, headers)
        assert status == 503
        assert "KVCompatible" in body["error"]["message"]
    assert not sites.prefill.requests


async def test_a_relay_of_another_model_is_gone_around(start: Any) -> None:
    sites = await start(relay={"facts": {"kv_cache_dtype": "fp8"}})
    status, body = await sites.complete(BODY, {"X-PDD-Trace": "on"})
    assert (status, body["pdd"]["pipeline"]) == (200, "P-MD")


async def test_a_bug_is_told_in_the_api_format(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    sites = await start()
    monkeypatch.setattr("pdd_router.front.pipelines.choose", bug)
    status, body = await sites.complete(BODY)
    assert (status, body["error"]["type"]) == (500, "InternalServerError")


async def test_overrides_need_leave(start: Any) -> None:
    sites = await start(overrides="Refused")
    status, body = await sites.complete(BODY, RELAY)
    assert status == 403
    assert "requestOverrides" in body["error"]["message"]


async def test_an_unknown_route_says_so_in_the_api_format(start: Any) -> None:
    sites = await start()
    for route in ("embeddings", "responses", "audio/transcriptions", "chat/completions/render"):
        async with sites.client.post(f"{sites.url}/v1/{route}", json={}) as response:
            body = await response.json()
        assert (response.status, body["error"]["type"]) == (404, "NotFoundError")
