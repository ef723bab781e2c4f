"""Engines that do not fit together are told apart and not used; API keys are asked for."""

import json

import httpx
import pytest
from openai import OpenAI

from pdd_e2e import running
from pdd_e2e.asking import ask
from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.engines import engines
from pdd_e2e.environment import Sites
from pdd_e2e.kube import condition, wait_for
from pdd_e2e.prompts import prompt

pytestmark = pytest.mark.e2e


def patch(sites: Sites, body: object, kind: str = "merge") -> None:
    sites.a.kubectl("-n", NAMESPACE, "patch", running.KIND, "tiny", f"--type={kind}", "-p", json.dumps(body))


def test_an_md_with_another_kv_format_is_not_used(sites: Sites, tiny: OpenAI) -> None:
    """Blocks of another size: NIXL would only find out with a request in hand."""
    parts = engines(sites, "tiny")
    before = parts.main.pod()
    args = "/spec/mainDecode/placements/0/engine/args"
    patch(sites, [{"op": "replace", "path": args, "value": ["--block-size", "64"]}], "json")
    try:
        wait_for("a new MD", lambda: parts.main.pod() != before, seconds=300)

        def told() -> dict[str, str] | None:
            found = condition(sites.a.get(running.KIND, "tiny", NAMESPACE), "KVCompatible")
            return found if found["status"] == "False" else None

        mismatch = wait_for("condition KVCompatible: False", told, seconds=120)
        assert mismatch["reason"] == "Mismatch"
        for part in ("block_size", "32", "64", parts.prefill.pod(), parts.main.pod()):
            assert part in mismatch["message"]
        with running.endpoint(sites, "tiny") as url:
            outcome = ask(url, "tiny", prompt(200, seed=1), max_tokens=4)
            assert outcome.status == 503, outcome
            assert outcome.error is not None
            assert "KVCompatible" in outcome.error["message"]
            assert "pdd_refused_pairs_total" in httpx.get(f"{url}/metrics").text
        assert not parts.held()
    finally:
        patch(sites, [{"op": "replace", "path": args, "value": []}], "json")
        running.wait_ready(sites.a, "tiny", print)


def test_a_key_is_asked_for_and_changes_without_a_restart(sites: Sites, tiny: OpenAI) -> None:
    """The Secret is in the prefill cluster, beside the front router."""

    def secret(**keys: str) -> dict[str, object]:
        meta = {"name": "tiny-keys", "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": keys}

    def uids() -> set[str]:
        found = running.pods(sites.a, "tiny", "front-router")
        return {pod["metadata"]["uid"] for pod in found if "deletionTimestamp" not in pod["metadata"]}

    sites.a.apply(secret(alice="sk-alice"))
    patch(sites, {"spec": {"endpoint": {"apiKeys": {"secretRef": {"name": "tiny-keys"}}}}})
    try:

        def status(key: str) -> int:
            with running.endpoint(sites, "tiny") as url:
                return httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code

        wait_for("the key to be asked for", lambda: status("sk-eve") == 401, seconds=120)
        assert status("sk-alice") == 200
        before = uids()
        sites.a.delete("secret", "tiny-keys", NAMESPACE)
        sites.a.apply(secret(bob="sk-bob"))
        # kubelet looks at the Secrets of its pods once a minute or so.
        wait_for("the new key", lambda: status("sk-bob") == 200, seconds=180)
        assert status("sk-alice") == 401
        assert uids() == before
    finally:
        patch(sites, {"spec": {"endpoint": {"apiKeys": None}}})
        running.wait_ready(sites.a, "tiny", print)
        sites.a.delete("secret", "tiny-keys", NAMESPACE)
