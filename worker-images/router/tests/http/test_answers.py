"""Through both routers: right tokens, in the right shape, by the right way."""

import asyncio
from typing import Any

import orjson
import pytest

from pdd_e2e.simulated.engine import continuation
from pdd_router.line.site import Site

PROMPT_IDS = list(range(100, 180))
PROMPT = " ".join(map(str, PROMPT_IDS))
COUNT = 12
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": COUNT, "temperature": 0}


def alone(count: int = COUNT) -> list[int]:
    return continuation(PROMPT_IDS, count)


def text(ids: list[int]) -> str:
    return "".join(f" {token}" for token in ids)


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
async def test_a_whole_answer(start: Any, pipeline: str) -> None:
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": pipeline, "X-PDD-Trace": "on"})
    assert status == 200
    assert body["choices"][0]["text"] == text(alone())
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == COUNT
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0  # P's hit, not MD's
    assert body["pdd"]["pipeline"] == pipeline


@pytest.mark.parametrize("cut_after", range(COUNT + 1))
async def test_the_cut_may_fall_anywhere(start: Any, cut_after: int) -> None:
    """The pull takes as long as `cut_after` tokens of RLD; past the end RLD answers alone."""
    step = 0.02
    sites = await start(main={"pull_seconds": cut_after * step + step / 2}, relay={"token_seconds": step})
    status, body = await sites.complete(BODY | {"return_token_ids": True}, {"X-PDD-Pipeline": "P-RLD-MD"})
    assert status == 200
    assert body["choices"][0]["token_ids"] == alone()


async def test_a_late_finish_of_rld_is_no_reason_to_ask_md_for_nothing(start: Any) -> None:
    """RLD's finish may come in an event of its own, after the cut."""
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.01, "finish_late_seconds": 1.0})
    body = BODY | {"return_token_ids": True}
    status, answer = await sites.complete(body, {"X-PDD-Pipeline": "P-RLD-MD"})
    assert status == 200
    assert answer["choices"][0]["token_ids"] == alone()
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_stream_has_a_chunk_for_each_token_and_says_who_made_it(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.1}, relay={"token_seconds": 0.03})
    body = BODY | {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"X-PDD-Pipeline": "P-RLD-MD", "X-PDD-Trace": "on"}
    async with sites.client.post(sites.url + "/v1/completions", json=body, headers=headers) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        raw = await response.read()
    events = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    *chunks, usage, trace = [orjson.loads(event) for event in events[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text(alone())
    by = [chunk["pdd"]["by"] for chunk in chunks]
    assert by == ["RLD"] * by.count("RLD") + ["MD"] * by.count("MD")
    assert 0 < by.count("RLD") < COUNT
    assert usage["usage"]["completion_tokens"] == COUNT
    assert usage["choices"] == []
    assert trace["pdd"]["eager_tokens"] == by.count("RLD")
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_chat_opens_with_the_role(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3, "stream": True}
    async with sites.client.post(sites.url + "/v1/chat/completions", json=body) as response:
        raw = await response.read()
    chunks = [orjson.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks) == text(alone(3))


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 16}])
async def test_the_default_length_is_kept(start: Any, limit: dict[str, int]) -> None:
    """vLLM's renderer leaves `max_tokens: 16` out of its answer, and its generate route takes that for no limit."""
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    body = {"model": "m", "prompt": PROMPT, "temperature": 0, "return_token_ids": True, **limit}
    _, answer = await sites.complete(body, {"X-PDD-Pipeline": "P-RLD-MD"})
    assert answer["choices"][0]["token_ids"] == alone(16)


async def test_a_short_transfer_goes_without_the_relay(start: Any) -> None:
    sites = await start(tolerated_wait_millis=60_000)
    status, body = await sites.complete(BODY, {"X-PDD-Trace": "on"})
    assert (status, body["pdd"]["pipeline"]) == (200, "P-MD")
    assert not sites.relay.requests


async def test_two_readers_two_leases(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.01})
    await sites.complete(BODY, {"X-PDD-Pipeline": "P-RLD-MD"})
    leases = [r["kv_transfer_params"]["lease"] for r in (sites.relay.requests[0], sites.main.requests[0])]
    assert len(set(leases)) == 2


async def test_a_batch_of_prompts_pulls_each_and_answers_each(start: Any) -> None:
    sites = await start()
    status, body = await sites.complete(BODY | {"prompt": [PROMPT, PROMPT + " 5"]})
    assert status == 200
    assert [c["text"] for c in body["choices"]] == [text(alone()), text(continuation([*PROMPT_IDS, 5], COUNT))]
    pulls = [r for r in sites.main.requests if (r.get("kv_transfer_params") or {}).get("do_remote_prefill")]
    assert [len(r["token_ids"]) for r in pulls] == [80, 81]


@pytest.mark.parametrize("pipeline", ["P-MD", "P-RLD-MD"])
async def test_a_lease_too_old_for_the_line_is_taken_anew(
    start: Any, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    """The first pull comes to main as if it had been on the way for a minute."""
    sites = await start(main={"pull_seconds": 0.05}, relay={"token_seconds": 0.02})
    told, late = Site._told, []

    def once_too_late(self: Site, prompt: Any) -> dict[str, Any]:
        asked = told(self, prompt)
        if not late:
            late.append(prompt)
            asked["usable_until"] -= 60
        return asked

    monkeypatch.setattr(Site, "_told", once_too_late)
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": pipeline})
    assert (status, body["choices"][0]["text"]) == (200, text(alone()))
    [pull] = [r for r in sites.main.requests if (r.get("kv_transfer_params") or {}).get("do_remote_prefill")]
    assert pull["kv_transfer_params"]["lease"] != late[0].kv_transfer_params["lease"]


async def test_a_next_turn_waits_for_the_kv_that_is_on_the_line(start: Any) -> None:
    """It would fetch all of it a second time."""
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.0})
    long = " ".join(map(str, range(300)))
    await sites.complete(BODY | {"prompt": long}, {"X-PDD-Pipeline": "P-RLD-MD"})
    assert sites.main.running == 1
    await sites.complete(BODY | {"prompt": long + " 7 7 7"}, {"X-PDD-Pipeline": "P-MD"})
    assert sites.main.most_running == 1


async def test_rld_answers_alone_and_the_transfer_still_ends(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.3}, relay={"token_seconds": 0.0})
    status, body = await sites.complete(BODY, {"X-PDD-Pipeline": "P-RLD-MD"})
    assert (status, body["choices"][0]["text"]) == (200, text(alone()))
    assert sites.main.running == 1  # the KV is on its way yet
    await asyncio.sleep(0.5)
    assert sites.main.running == 0
