"""What the agent serves to its own cluster."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pdd_link.app import application
from pdd_link.document import Measurements

from .line import Pair, peer, until


async def test_measurements_and_metrics(start: Any) -> None:
    a, b = await start("site-a"), await start("site-b")
    a.configure(peer("site-b", b.port))
    async with TestClient(TestServer(application(a.agent))) as client:
        assert (await client.get("/readyz")).status == (await client.get("/healthz")).status == 200
        await until(lambda: a.agent.peers and (a.peer["pathMtu"] or {}).get("fullSizePasses") and a.echo["echoed"] > 2)
        response = await client.get("/v1/measurements")
        assert response.content_type == "application/json"
        told = Measurements.model_validate_json(await response.read())
        assert (told.version, told.link, told.site, told.window_seconds) == (1, "a-b", "site-a", 60)
        text = await (await client.get("/metrics")).text()
        labels = {"site": "site-b", "peer": f"127.0.0.1:{b.port}"}
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if labels.items() <= sample.labels.items() and sample.labels.get("class", "EF") == "EF"
        }
        assert found["pdd_link_probes_sent_total"] >= found["pdd_link_probes_echoed_total"] > 0
        assert found["pdd_link_round_trip_seconds_count"] == found["pdd_link_probes_echoed_total"]
        assert found["pdd_link_path_mtu_bytes"] == found["pdd_link_expected_mtu_bytes"] == 1500
        assert found["pdd_link_jitter_seconds"] > 0
        assert found["pdd_link_loss_ratio"] >= 0
        a.configure()
        await until(lambda: not a.agent.peers)
        # Its last packets may be on their way yet.
        await until(lambda: labels["peer"] not in generate_latest().decode())


async def test_the_last_good_configuration_is_kept(pair: Pair) -> None:
    echoed = pair.a.echo["echoed"]
    (pair.a.directory / "link.json").write_text("{")
    (pair.a.directory / "probe.key").write_bytes(b"short")
    await until(lambda: pair.a.agent._config._reported and pair.a.agent._keys._reported)
    await until(lambda: pair.a.echo["echoed"] > echoed + 10)


async def test_what_cannot_be_used_at_the_start_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pdd_link.cli", "--config", str(tmp_path / "link.json"), "--keys", str(tmp_path)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "link.json: cannot be read: No such file" in ended.stderr
