"""What breaks on the way never becomes a wrong answer."""

import asyncio
from typing import Any

import pytest

PROMPT = " ".join(map(str, range(100, 180)))
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
RELAY = {"X-PDD-Pipeline": "P-RLD-MD"}


async def whole(start: Any) -> str:
    """The right answer, from engines without faults."""
    sites = await start(tolerated_wait_millis=60_000)
    _, body = await sites.complete(BODY)
    return str(body["choices"][0]["text"])


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
    right = await whole(start)
    sites = await start(**fault)
    status, body = await sites.complete(BODY, RELAY)
    assert (status, body["choices"][0]["text"]) == (200, right)


async def test_both_decoders_failing_is_a_clean_error(start: Any) -> None:
    sites = await start(relay={"dies_after_tokens": 2}, main={"fails_pull": True, "pull_seconds": 0.1})
    status, body = await sites.complete(BODY, RELAY)
    assert status == 502
    assert body["error"]["type"] == "UpstreamError"
    assert "r-0" in body["error"]["message"]


async def test_an_error_after_the_first_token_ends_the_stream_with_it(start: Any) -> None:
    sites = await start(relay={"token_seconds": 0.02}, main={"pull_seconds": 0.05, "dies_after_tokens": 2})
    async with sites.client.post(
        sites.url + "/v1/completions", json=BODY | {"stream": True}, headers=RELAY
    ) as response:
        assert response.status == 200
        raw = (await response.read()).decode()
    assert '"error":' in raw
    assert raw.endswith("data: [DONE]\n\n")
    assert '"finish_reason":"length"' not in raw


@pytest.mark.parametrize("end", ["killed", "error", "abort", "cut"])
async def test_mds_own_stream_breaking_is_never_taken_for_the_end(start: Any, end: str) -> None:
    sites = await start(main={"completions_end": end}, tolerated_wait_millis=60_000)
    async with (
        asyncio.timeout(30),
        sites.client.post(sites.url + "/v1/completions", json=BODY | {"stream": True}) as response,
    ):
        raw = (await response.read()).decode()
    assert response.status == 200
    assert '"error":' in raw
    assert raw.endswith("data: [DONE]\n\n")


async def test_a_client_that_leaves_frees_everything(start: Any) -> None:
    sites = await start(relay={"token_seconds": 0.05}, main={"pull_seconds": 5})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await sites.complete(BODY | {"max_tokens": 200}, RELAY)
    async with asyncio.timeout(30):
        while sites.relay.running or sites.main.running or sites.renderer.open_sockets:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("raw", "headers", "status", "said"),
    [
        ("{", {}, 400, "not JSON"),
        ("[]", {}, 400, "JSON object"),
        ('{"model": "m", "prompt": ""}', {}, 400, "prompt is empty"),
        ('{"model": "m", "prompt": "1"}', {"X-PDD-Pipeline": "P-RLD"}, 400, "P-MD or P-RLD-MD"),
        ('{"model": "m", "prompt": "1", "seed": 1}', RELAY, 400, "seed"),
        ('{"model": "m", "prompt": "1", "kv_transfer_params": {"remote_host": "x"}}', {}, 400, "kv_transfer_params"),
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


async def test_a_bug_is_told_in_the_api_format(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    sites = await start()
    monkeypatch.setattr("pdd_router.front.serve.choose", bug)
    status, body = await sites.complete(BODY)
    assert (status, body["error"]["type"]) == (500, "InternalServerError")


async def test_overrides_need_leave(start: Any) -> None:
    sites = await start(overrides="Refused")
    status, body = await sites.complete(BODY, RELAY)
    assert status == 403
    assert "requestOverrides" in body["error"]["message"]


async def test_a_batch_cannot_be_forced_onto_the_relay(start: Any) -> None:
    sites = await start()
    status, body = await sites.complete(BODY | {"prompt": [PROMPT, PROMPT]}, RELAY)
    assert status == 400
    assert "batch" in body["error"]["message"]


async def test_an_unknown_route_says_so_in_the_api_format(start: Any) -> None:
    sites = await start()
    async with sites.client.post(sites.url + "/v1/embeddings", json={}) as response:
        body = await response.json()
    assert (response.status, body["error"]["type"]) == (404, "NotFoundError")


async def test_no_site_no_direct_answer(start: Any) -> None:
    sites = await start()
    sites.main.fails_pull = True
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": "P-MD"})
    assert status in (502, 503)
    assert body["error"]["message"]
