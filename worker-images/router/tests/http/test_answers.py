"""Through both routers: right tokens, by the right way."""

import asyncio
from time import time
from typing import Any

import orjson
import pytest

from pdd_e2e.simulated.engine import as_text, continuation
from pdd_router.line.site import Site

PROMPT_IDS = list(range(100, 180))
PROMPT = " ".join(map(str, PROMPT_IDS))
COUNT = 12
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": COUNT, "temperature": 0}
RELAY = {"X-PDD-Pipeline": "P-RLD-MD"}


def alone(count: int = COUNT) -> list[int]:
    return continuation(PROMPT_IDS, count)


def events(raw: bytes) -> list[Any]:
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
async def test_a_whole_answer(start: Any, pipeline: str) -> None:
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": pipeline, "X-PDD-Trace": "on"})
    assert status == 200
    assert body["choices"][0]["text"] == as_text(alone())
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == COUNT
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0  # P's hit, not MD's
    assert body["pdd"]["pipeline"] == pipeline


@pytest.mark.parametrize("cut_at", range(COUNT + 2))
async def test_a_cut_may_be_asked_for_anywhere(start: Any, cut_at: int) -> None:
    sites = await start(main={"pull_seconds": 0.02}, relay={"token_seconds": 0.001})
    headers = {**RELAY, "X-PDD-Cut": str(cut_at), "X-PDD-Trace": "on"}
    status, body = await sites.complete(BODY, headers)
    assert (status, body["choices"][0]["text"]) == (200, as_text(alone()))
    assert body["pdd"]["eager_tokens"] == min(cut_at, COUNT)
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("cut_after", [0, 1, 5, COUNT - 1, COUNT])
async def test_the_cut_falls_where_the_transfer_ends(start: Any, cut_after: int) -> None:
    """The pull takes as long as `cut_after` tokens of RLD; past the end RLD answers alone."""
    step = 0.02
    sites = await start(main={"pull_seconds": cut_after * step + step / 2}, relay={"token_seconds": step})
    status, body = await sites.complete(BODY, RELAY)
    assert (status, body["choices"][0]["text"]) == (200, as_text(alone()))


async def test_a_late_finish_of_rld_is_no_reason_to_ask_md_for_nothing(start: Any) -> None:
    """RLD's finish may come in an event of its own, after the cut."""
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.01, "finish_late_seconds": 1.0})
    status, answer = await sites.complete(BODY, RELAY)
    assert (status, answer["choices"][0]["text"]) == (200, as_text(alone()))
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_stream_comes_as_the_renderer_made_it_with_a_trace_before_its_end(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.1}, relay={"token_seconds": 0.03})
    headers = {**RELAY, "X-PDD-Trace": "on"}
    async with sites.client.post(
        sites.url + "/v1/completions", json=BODY | {"stream": True}, headers=headers
    ) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        *chunks, trace = events(await response.read())
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[token] for token in alone()]
    assert trace["object"] == "pdd.trace"
    by = [chunk["pdd"]["by"] for chunk in chunks]
    assert by == ["RLD"] * trace["pdd"]["eager_tokens"] + ["MD"] * (COUNT - trace["pdd"]["eager_tokens"])
    assert 0 < trace["pdd"]["eager_tokens"] < COUNT
    assert trace["pdd"]["output_tokens"] == COUNT


async def test_the_first_token_does_not_wait_for_the_others(start: Any) -> None:
    """Nor for the transfer."""
    sites = await start(main={"pull_seconds": 5}, relay={"token_seconds": 0.05})
    async with (
        asyncio.timeout(2),
        sites.client.post(
            sites.url + "/v1/completions", json=BODY | {"stream": True, "max_tokens": 2000}, headers=RELAY
        ) as response,
    ):
        first = await response.content.readline()
    assert orjson.loads(first[6:])["choices"][0]["token_ids"] == alone(1)


async def test_the_body_goes_to_the_renderer_byte_for_byte(start: Any) -> None:
    sites = await start()
    await sites.complete(BODY | {"a_field_of_a_later_vllm": [1, {"x": None}]}, {"X-Request-Id": "mine"})
    [seen] = sites.renderer.requests
    assert seen["body"] == BODY | {"a_field_of_a_later_vllm": [1, {"x": None}]}
    assert seen["headers"]["X-Request-Id"] == "mine"


async def test_a_short_transfer_goes_without_the_relay(start: Any) -> None:
    sites = await start(tolerated_wait_millis=60_000)
    status, body = await sites.complete(BODY, {"X-PDD-Trace": "on"})
    assert (status, body["pdd"]["pipeline"]) == (200, "P-MD")
    assert not sites.relay.requests


async def test_two_readers_two_leases(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    await sites.complete(BODY, RELAY)
    leases = [r["kv_transfer_params"]["remote_request_id"] for r in (sites.relay.requests[0], sites.main.requests[0])]
    assert len(set(leases)) == 2
    assert not sites.prefill.released


async def test_a_batch_of_prompts_pulls_each_and_answers_each(start: Any) -> None:
    sites = await start()
    status, body = await sites.complete(BODY | {"prompt": [PROMPT, PROMPT + " 5"]})
    assert status == 200
    assert [c["text"] for c in body["choices"]] == [as_text(alone()), as_text(continuation([*PROMPT_IDS, 5], COUNT))]


async def test_equal_prompts_of_one_request_are_prefilled_one_after_the_other(start: Any) -> None:
    """The second finds the first's KV in P's cache; at once both would compute it."""
    sites = await start(prefill={"prefill_seconds": 0.05}, tolerated_wait_millis=60_000)
    await sites.complete(BODY | {"prompt": [PROMPT, PROMPT, PROMPT]})
    assert len(sites.prefill.requests) == 3
    assert sites.prefill.most_running == 1


async def test_a_feature_that_counts_its_output_stays_on_md(start: Any) -> None:
    sites = await start()
    asked = BODY | {"sampling_params": {"presence_penalty": 0.5}}
    status, body = await sites.complete(asked, {"X-PDD-Trace": "on"})
    assert (status, body["pdd"]["pipeline"]) == (200, "P-MD")
    assert "presence_penalty" in body["pdd"]["reason"]
    status, body = await sites.complete(asked, RELAY)
    assert (status, body["error"]["param"]) == (400, "presence_penalty")


async def test_prompt_logprobs_are_ps_alone(start: Any) -> None:
    """MD would read no KV for them: scoring skips the prefix cache."""
    sites = await start(tolerated_wait_millis=60_000)
    await sites.complete(BODY | {"sampling_params": {"prompt_logprobs": 2}})
    assert sites.prefill.requests[0]["sampling_params"]["prompt_logprobs"] == 2
    assert all("prompt_logprobs" not in request["sampling_params"] for request in sites.main.requests)


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
async def test_a_lease_too_old_for_the_line_is_taken_anew(
    start: Any, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    """The first pull comes to main as if it had been on the way for a minute."""
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.02})
    told, late = Site._told, []

    def once_too_late(self: Site, lease: Any) -> dict[str, Any]:
        asked = told(self, lease)
        if not late:
            late.append(lease)
            asked["usable_until"] -= 60
        return asked

    monkeypatch.setattr(Site, "_told", once_too_late)
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": pipeline})
    assert (status, body["choices"][0]["text"]) == (200, as_text(alone()))
    old = late[0].kv_transfer_params["remote_request_id"]
    [pull] = [r for r in sites.main.requests if (r.get("kv_transfer_params") or {}).get("do_remote_prefill")]
    assert pull["kv_transfer_params"]["remote_request_id"] != old
    async with asyncio.timeout(5):
        while sites.prefill.released != [old]:  # nobody reads it
            await asyncio.sleep(0.01)


async def test_a_pull_tells_md_until_when_its_lease_is_usable(start: Any) -> None:
    sites = await start(tolerated_wait_millis=60_000)
    await sites.complete(BODY)
    params = sites.main.requests[0]["kv_transfer_params"]

    assert 15 < params["pdd_usable_until"] - time() < 20


async def test_a_lease_that_would_begin_in_the_future_begins_when_it_was_asked_for(start: Any) -> None:
    """A core on another host than its API server has another clock."""
    sites = await start(prefill={"core_ahead": 5000.0, "answer_seconds": 2.0}, tolerated_wait_millis=60_000)
    async with asyncio.timeout(5):
        while sites.front._prefill.known[0].here(0.0) is None:
            await asyncio.sleep(0.01)
    await sites.complete(BODY)
    assert 10 < sites.main.requests[0]["kv_transfer_params"]["pdd_usable_until"] - time() < 18


async def test_a_shorter_lease_is_usable_for_less(start: Any) -> None:
    """RLD's too."""
    short = {"facts": {"kv_lease_duration": 6.0}}
    sites = await start(prefill=short, relay=short, main=short)
    await sites.complete(BODY, RELAY)
    for engine in (sites.relay, sites.main):
        assert 1 < engine.requests[0]["kv_transfer_params"]["pdd_usable_until"] - time() < 4


async def test_an_answer_of_p_that_was_long_on_its_way_brings_an_older_lease(start: Any) -> None:
    """By P's clock, which is another one."""
    sites = await start(prefill={"answer_seconds": 2.0, "clock_ahead": 5000.0}, tolerated_wait_millis=60_000)
    async with asyncio.timeout(5):
        while sites.front._prefill.known[0].here(0.0) is None:
            await asyncio.sleep(0.01)
    await sites.complete(BODY)
    params = sites.main.requests[0]["kv_transfer_params"]
    assert 10 < params["pdd_usable_until"] - time() < 18


async def test_a_next_turn_waits_for_the_kv_that_is_on_the_line(start: Any) -> None:
    """It would fetch all of it a second time."""
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.0})
    long = " ".join(map(str, range(300)))
    await sites.complete(BODY | {"prompt": long}, RELAY)
    assert sites.main.running == 1
    await sites.complete(BODY | {"prompt": long + " 7 7 7"}, {"X-PDD-Pipeline": "P-MD"})
    assert sites.main.most_running == 1


async def test_rld_answers_alone_and_the_transfer_still_ends(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.0})
    status, body = await sites.complete(BODY, RELAY)
    assert (status, body["choices"][0]["text"]) == (200, as_text(alone()))
    assert sites.main.running == 1  # the KV is on its way yet
    await asyncio.sleep(0.5)
    assert sites.main.running == 0
