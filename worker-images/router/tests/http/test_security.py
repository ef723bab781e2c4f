"""Who may ask, and what of a request goes on or is written down."""

from pathlib import Path
from typing import Any

import pytest
import structlog

from pdd_router.front.keys import ApiKeys

BODY = {"model": "m", "prompt": "11 12 13 14", "max_tokens": 3}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "alice").write_text("sk-alice\n")
    (tmp_path / "bob").write_text("sk-bob")
    (tmp_path / "..data").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer sk-alice", 200),
        ("bearer sk-bob", 200),
        ("Bearer sk-eve", 401),
        ("Bearer ", 401),
        ("Basic sk-alice", 401),
        ("sk-alice", 401),
        (None, 401),
    ],
)
async def test_a_key_is_needed(start: Any, keys: Path, authorization: str | None, status: int) -> None:
    sites = await start(api_keys_dir=str(keys))
    headers = {"Authorization": authorization} if authorization is not None else {}
    got, body = await sites.complete(BODY, headers)
    assert got == status
    if status == 401:
        assert body["error"]["code"] == 401
        assert not sites.renderer.requests
        async with sites.client.get(sites.url + "/v1/models", headers=headers) as response:
            assert response.status == 401


def test_a_key_that_is_no_text_is_just_wrong(keys: Path) -> None:
    assert not ApiKeys(str(keys)).allows("Bearer " + b"\xff\xfe".decode(errors="surrogateescape"))


def test_keys_change_without_a_restart(keys: Path) -> None:
    known = ApiKeys(str(keys))
    assert known.allows("Bearer sk-bob")
    (keys / "bob").unlink()
    (keys / "carol").write_text("sk-carol")
    known._read()
    assert not known.allows("Bearer sk-bob")
    assert known.allows("Bearer sk-carol")


def test_a_secret_that_cannot_be_read_lets_nobody_new_in(keys: Path) -> None:
    known = ApiKeys(str(keys / "missing"))
    assert not known.allows("Bearer sk-alice")
    assert not known.allows(None)
    assert ApiKeys(None).allows(None)


async def test_no_prompt_and_no_key_in_the_log(start: Any, keys: Path) -> None:
    sites = await start(api_keys_dir=str(keys))
    with structlog.testing.capture_logs() as lines:
        await sites.complete(BODY | {"prompt": "7001 7002 7003"}, {"Authorization": "Bearer sk-alice"})
        await sites.complete(BODY, {"Authorization": "Bearer sk-eve-secret"})
    said = str(lines)
    assert "7002" not in said
    assert "sk-" not in said


async def test_trace_context_goes_to_every_engine(start: Any) -> None:
    context = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    sites = await start(main={"pull_seconds": 0.1}, relay={"token_seconds": 0.02})
    await sites.complete(BODY | {"max_tokens": 20}, context | {"X-PDD-Pipeline": "P-RLD-MD"})
    for engine in (sites.prefill, sites.relay, sites.main):
        assert engine.headers
        for headers in engine.headers:
            assert {name: headers.get(name) for name in context} == context


async def test_engines_see_ids_of_their_own(start: Any) -> None:
    """Two clients may choose the same id: leases are given back by id."""
    sites = await start(tolerated_wait_millis=60_000)
    for _ in range(2):
        await sites.complete(BODY, {"X-Request-Id": "mine"})
    ids = [headers["X-Request-Id"] for headers in sites.prefill.headers]
    assert len(set(ids)) == 2
    assert all(i.startswith("mine.") for i in ids)
