"""What the routers add to the time to first token: the same engine calls with and without them, in turn.

    make bench

Runs in the front router's pod, so that both ways start at the same place: through the front on loopback, and
straight to renderer, P and MD in the order in which the routers call them (the request rendered, lease at P, pull at
MD, answer from MD): a client that did without the routers would have to make these calls. The prompt is cached on both
engines, so what they do is small and the same. P-MD. The direct way crosses the line twice, for the pull and for the
answer; the routers once, because the main router makes both calls at MD's site. So the figure is the routers' own time
less a round trip, and both are printed.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROUNDS = 60
PROMPT = 512
LEASE: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
ONE_TOKEN = {"max_tokens": 1, "temperature": 0.0}


async def inside(renderer: str, prefill: str, main: str, model: str) -> None:
    """In the pod: prints one JSON line."""
    import aiohttp  # noqa: PLC0415 - of the pod's image, not of the machine that starts this

    ids = [1_000 + (n * 7919) % 40_000 for n in range(PROMPT)]
    ask = {"model": model, "prompt": ids, "max_tokens": 4, "temperature": 0, "stream": True}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(keepalive_timeout=4)) as session:

        async def generate(url: str, params: dict[str, Any]) -> dict[str, Any]:
            body = {"token_ids": ids, "sampling_params": ONE_TOKEN, "kv_transfer_params": params, "stream": False}
            async with session.post(f"{url}/inference/v1/generate", json=body) as response:
                answer: dict[str, Any] = await response.json()
                return answer

        async def straight() -> float:
            start = time.perf_counter()
            async with session.post(f"{renderer}/v1/completions/render", json=ask) as response:
                await response.read()
            lease = await generate(prefill, LEASE)
            await generate(main, lease["kv_transfer_params"])
            async with session.post(f"{main}/v1/completions", json=ask) as response:
                await response.content.readany()
                taken = time.perf_counter() - start
                await response.read()
            return taken

        async def routed() -> float:
            start = time.perf_counter()
            headers = {"X-PDD-Pipeline": "P-MD"}
            async with session.post("http://127.0.0.1:8000/v1/completions", json=ask, headers=headers) as response:
                await response.content.readany()
                taken = time.perf_counter() - start
                await response.read()
            return taken

        for _ in range(5):
            await straight()
            await routed()
        pairs = []
        for number in range(ROUNDS):
            first, second = (straight, routed) if number % 2 else (routed, straight)
            a, b = await first(), await second()
            pairs.append((a, b) if number % 2 else (b, a))
    print(json.dumps(pairs))


def outside(name: str) -> int:
    from pdd_e2e import environment, running  # noqa: PLC0415 - not there in the pod

    sites = environment.sites()
    address = {
        component: f"http://{running.pods(cluster, name, component)[0]['status']['podIP']}:8000"
        for cluster, component in ((sites.a, "renderer"), (sites.a, "prefill"), (sites.b, "main-decode"))
    }
    front = running.pods(sites.a, name, "front-router")[0]["metadata"]["name"]
    program = ["python3", "-", "--inside", *address.values(), name]
    said = sites.a.kubectl(
        "exec", "-i", "-n", "llm", front, "--", *program, stdin=Path(__file__).read_text(), timeout=500
    )
    pairs = json.loads(said.splitlines()[-1])
    straight, routed = ([1e3 * pair[n] for pair in pairs] for n in (0, 1))
    added = statistics.median(b - a for a, b in zip(straight, routed, strict=True))
    cpu = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"{len(pairs)} pairs, prompt of {PROMPT} tokens, model {name}, {cpu} cores, load {load}")
    for label, times in (("engines alone", straight), ("through the routers", routed)):
        cuts = statistics.quantiles(times, n=10)
        print(f"  TTFT {label:20} median {statistics.median(times):6.1f} ms, p10 {cuts[0]:.1f}, p90 {cuts[-1]:.1f}")
    print(f"  the routers add {added:.1f} ms (median of the pairs' differences; promised: under 5)")
    link = sites.a.get("wanlink", "a-b")["status"]["paths"][0]["roundTripMicros"]["p50"] / 1e3
    print(f"  of which a round trip saved: the line's is {link:.1f} ms, so their own time is {added + link:.1f} ms")
    return 0 if added < 5 else 1


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--inside", nargs=4, metavar=("RENDERER", "PREFILL", "MAIN", "MODEL"))
    arguments.add_argument("--deployment", default="tiny")
    options = arguments.parse_args()
    if options.inside:
        asyncio.run(inside(*options.inside))
    else:
        sys.exit(outside(options.deployment))
