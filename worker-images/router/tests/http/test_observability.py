"""What an operator of the service can see of a request afterwards."""

from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

PROMPT = " ".join(map(str, range(100, 180)))
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}


async def metrics(sites: Any) -> dict[tuple[str, str], float]:
    async with sites.client.get(sites.url + "/metrics") as response:
        text = await response.text()
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_request_leaves_a_line_and_numbers(start: Any) -> None:
    sites = await start(main={"pull_seconds": 0.1}, relay={"token_seconds": 0.02})
    before = await metrics(sites)
    with structlog.testing.capture_logs() as lines:
        await sites.complete(BODY, {"X-PDD-Pipeline": "P-RLD-MD", "X-Request-Id": "r1"})
    [line] = [line for line in lines if line["event"] == "request"]
    assert line["request_id"] == "r1"
    assert line["pipeline"] == "P-RLD-MD"
    assert line["prompt_tokens"] == 80
    assert line["output_tokens"] == 12
    assert 0 < line["eager_tokens"] < 12
    # 80 tokens are three blocks of 32.
    assert line["line_bytes"] == 3 * 32 * 1000
    assert {"ttft", "prefill", "transfer", "transfer_predicted", "handoff", "total"} <= set(line["seconds"])
    assert line["engines"] == {"prefill": "p-0", "relay": "r-0", "main": "md-0"}

    after = await metrics(sites)

    def grown(name: str, labels: str = "") -> float:
        return after[name, labels] - before.get((name, labels), 0.0)

    assert grown("pdd_requests_total", "outcome=ok,pipeline=P-RLD-MD,route=completions") == 1
    assert grown("pdd_prompt_tokens_total") == 80
    assert grown("pdd_line_kv_bytes_total") == 3 * 32 * 1000
    assert grown("pdd_output_tokens_total", "role=relay-decode") == line["eager_tokens"]
    assert grown("pdd_output_tokens_total", "role=main-decode") == 12 - line["eager_tokens"]
    for name in ("pdd_time_to_first_token_seconds", "pdd_transfer_seconds", "pdd_handoff_seconds"):
        assert grown(f"{name}_count", "pipeline=P-RLD-MD") == 1


@pytest.mark.parametrize(
    ("sent", "kept"), [("job-7:a.b_c", True), ("x" * 129, False), ("a b", False), ("\u00e9", False)]
)
async def test_a_request_id_is_kept_where_it_is_harmless(start: Any, sent: str, kept: bool) -> None:
    sites = await start()
    async with sites.client.post(sites.url + "/v1/completions", json=BODY, headers={"X-Request-Id": sent}) as response:
        assert (response.headers["X-Request-Id"] == sent) is kept
    assert response.status == 200


async def test_telemetry_tells_the_round_trip(start: Any) -> None:
    sites = await start()
    async with sites.client.get(sites.url + "/telemetry") as response:
        told = await response.json()
    assert told["version"] == 1
    [link] = told["links"]
    assert (link["link"], link["peer"], link["reachable"]) == ("a-b", "site-b", True)
    assert 0 < link["rttMicros"]["p50"] <= link["rttMicros"]["p99"]
    assert link["samples"] >= 1


async def test_models_names_the_model(start: Any) -> None:
    sites = await start()
    async with sites.client.get(sites.url + "/v1/models") as response:
        [card] = (await response.json())["data"]
    assert (card["id"], card["max_model_len"]) == ("m", 4096)
