"""What the order of transfers is worth: one trace of KV transfers in three disciplines, over real TCP connections.

    python e2e/bench/line_order.py [--pairs 1] [--load 0.7] [--seconds 25] [--seed 1]
    python e2e/bench/line_order.py --serve 7000                          # at one end of a line of your own
    python e2e/bench/line_order.py --connect HOST:7000 --megabits 1000   # at its other end

Without `--connect` the line is loopback, and a token bucket in the serving process, shared by all connections, is its
rate. Sizes are those of real coding agents (pdd_e2e.simulated.line), arrivals by chance. It runs SPEED times as fast as
a line of 10 Gb/s with 46.5 KB a token: multiply the seconds by it.

- first come: every transfer at once over one pair, which carries them one after the other, as NIXL does;
- sharing: every transfer at once over a connection of its own, so that TCP divides the line;
- ours: the router's own schedule (pdd_router.line.schedule), over `--pairs` connections that carry one after the other.

Each request's bytes begin to flow LATENCY after it was asked for (a round trip, a step of MD).
"""

import argparse
import asyncio
import multiprocessing
import os
import platform
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import uvloop

from pdd_e2e.simulated.line import Asked, first_come, ordered, percentile, shared, skewed
from pdd_router.line import schedule as line_schedule
from pdd_router.line.round_trip import RoundTrips
from pdd_router.line.schedule import Schedule
from pdd_router.policy.order import Order, Urgency

SPEED = 5
WINDOW_SECONDS = line_schedule._WINDOW_SECONDS / SPEED
LATENCY = 0.05 / SPEED
AS_IF_BITS_PER_SECOND, AS_IF_BYTES_PER_TOKEN = 10e9, 46_500
_CHUNK = 32 * 1024
_ASK = struct.Struct("!Q")


class Bucket:
    """Lets so many bytes a second through; whoever asks first has them first, chunk by chunk."""

    def __init__(self, rate: float | None):
        self._rate = rate
        self._free = 0.0
        self._sending = 0

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Bytes that were not used while nobody had any are gone; while somebody has, a process that the machine wakes
        late makes up for it."""
        if not self._sending:
            self._free = max(self._free, time.monotonic())
        self._sending += 1
        try:
            yield
        finally:
            self._sending -= 1

    async def take(self, size: int) -> None:
        if self._rate is None:
            return
        self._free += size / self._rate
        await asyncio.sleep(self._free - time.monotonic())


async def serve(port: int, rate: float | None, told: Callable[[int], None]) -> None:
    """Asked for a number of bytes, sends so many; on one connection one after the other."""
    bucket, chunk = Bucket(rate), b"\0" * _CHUNK

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: asyncio.Queue[tuple[float, int]] = asyncio.Queue()

        async def answer() -> None:
            while True:
                flows_at, left = await asked.get()
                await asyncio.sleep(max(0.0, flows_at - time.monotonic()))
                with bucket.sending():
                    while left:
                        size = min(left, _CHUNK)
                        await bucket.take(size)
                        writer.write(chunk[:size])
                        await writer.drain()
                        left -= size

        answering = asyncio.create_task(answer())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                [size] = _ASK.unpack(await reader.readexactly(_ASK.size))
                asked.put_nowait((time.monotonic() + LATENCY, size))
        answering.cancel()
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1" if rate else "0.0.0.0", port)
    told(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class Pair:
    """A connection on which one transfer comes after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self._turns = asyncio.Lock()

    @classmethod
    async def connect(cls, host: str, port: int) -> "Pair":
        return cls(*await asyncio.open_connection(host, port))

    async def pull(self, size: int) -> None:
        self._writer.write(_ASK.pack(size))
        async with self._turns:
            left = size
            while left:
                got = len(await self._reader.read(min(left, 1 << 20)))
                if not got:
                    raise ConnectionResetError("the serving end is gone")
                left -= got

    def close(self) -> None:
        self._writer.close()


Discipline = Callable[[Asked], Awaitable[None]]


async def replay(asked: Sequence[Asked], transfer: Discipline) -> list[float]:
    """Seconds from asked to there."""
    began = time.monotonic()

    async def one(each: Asked) -> float:
        await asyncio.sleep(began + each.at - time.monotonic())
        at = time.monotonic()
        await transfer(each)
        return time.monotonic() - at

    return list(await asyncio.gather(*(one(each) for each in asked)))


class Ours:
    def __init__(self, pairs: Sequence[Pair], rate: float):
        line_schedule._WINDOW_SECONDS = WINDOW_SECONDS
        self._pairs = pairs
        self._schedule = Schedule("the line", rate, RoundTrips())
        self.off: list[float] = []
        """Seconds that each took over those that were predicted for it."""

    async def transfer(self, each: Asked) -> None:
        left, schedule = int(each.size), self._schedule
        predicted = schedule.seconds_ahead(left, Urgency.USER_WAITS) + LATENCY + left / schedule.rate
        place = schedule.ask(each.way, left, Urgency.USER_WAITS)
        try:
            following = left
            while left:
                size = following if following <= schedule.piece * 1.25 else int(schedule.piece)
                await place.turn(size, left=left, until=float("inf"))
                turned = time.monotonic()
                await self._pairs[each.way].pull(size)
                left = following = left - size
                then = left if left <= schedule.piece * 1.25 else int(schedule.piece)
                place.arrived(size, time.monotonic() - turned, then=then, left=left)
            self.off.append((time.monotonic() - place.asked) / predicted)
        finally:
            place.close()


async def run(host: str, port: int, rate: float, options: argparse.Namespace) -> None:
    bytes_per_token = AS_IF_BYTES_PER_TOKEN * rate * 8 / AS_IF_BITS_PER_SECOND / SPEED
    mean = 4320 * bytes_per_token
    count = int(options.seconds * options.load * rate / mean)
    asked = skewed(
        count, load=options.load, rate=rate, bytes_per_token=bytes_per_token, ways=options.pairs, seed=options.seed
    )
    print(
        f"{count} transfers, {sum(each.size for each in asked) / 1e6:.0f} MB, load {options.load:.0%}, "
        f"{options.pairs} pair(s), seed {options.seed}"
    )

    one = await Pair.connect(host, port)

    async def alone(each: Asked) -> None:
        pair = await Pair.connect(host, port)
        try:
            await pair.pull(int(each.size))
        finally:
            pair.close()

    ours = Ours([await Pair.connect(host, port) for _ in range(options.pairs)], rate)
    order = Order(window_seconds=WINDOW_SECONDS, most=line_schedule._MOST_AT_ONCE)
    on_paper = {
        "first come": first_come(asked, rate),
        "sharing": shared(asked, rate),
        "ours": ordered(asked, rate, order=order, latency=LATENCY),
    }
    measured = {
        "first come": await replay(asked, lambda each: one.pull(int(each.size))),
        "sharing": await replay(asked, alone),
        "ours": await replay(asked, ours.transfer),
    }
    print("\nseconds here         p50     p90     p99    mean   on paper: p50     p90     p99")
    for name, seconds in measured.items():
        row = [percentile(seconds, p) for p in (50, 90, 99)]
        paper = "".join(f"{percentile(on_paper[name], p):8.3f}" for p in (50, 90, 99))
        print(
            f"{name:14}"
            + "".join(f"{value:8.3f}" for value in [*row, sum(seconds) / len(seconds)])
            + "        "
            + paper
        )
    small = {name: [s for s, each in zip(of, asked, strict=True) if each.size < 0.1 * WINDOW_SECONDS * rate]
             for name, of in measured.items()}  # fmt: skip
    print(
        "\np99 of the small ones (a tenth of what may be under way) beside the others: "
        + ", ".join(f"{name} {percentile(of, 99):.3f}" for name, of in small.items())
    )
    off = [percentile(ours.off, p) for p in (10, 50, 90)]
    print("\nours: taken over predicted, p10 / p50 / p90: " + " / ".join(f"{value:.2f}" for value in off))
    print(plot(measured))


def plot(measured: dict[str, list[float]]) -> str:
    """The share of transfers that are there after so many seconds."""
    lines = ["", "there after    " + "".join(f"{name:32}" for name in measured)]
    for seconds in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10):
        shares = [sum(each <= seconds for each in all_of_it) / len(all_of_it) for all_of_it in measured.values()]
        bars = "".join(f"{'#' * round(share * 24):24} {share:4.0%}   " for share in shares)
        lines.append(f"{seconds:8.2f} s     {bars}")
    return "\n".join(lines)


def _serving(port: int, rate: float | None, told: "multiprocessing.Queue[int]") -> None:
    uvloop.run(serve(port, rate, told.put))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=1)
    options.add_argument("--load", type=float, default=0.7)
    options.add_argument("--seconds", type=float, default=25, help="of each of the three replays, about")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--megabits", type=float, default=200, help="the line's rate")
    options.add_argument("--serve", type=int, metavar="PORT")
    options.add_argument("--connect", metavar="HOST:PORT")
    asked = options.parse_args()
    if asked.serve is not None:
        uvloop.run(serve(asked.serve, None, partial(print, "serving on port", flush=True)))
        return 0
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load}, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )
    rate = asked.megabits * 1e6 / 8
    if asked.connect is not None:
        host, _, port = asked.connect.rpartition(":")
        print(f"over the line to {asked.connect}, taken for {asked.megabits:.0f} Mb/s")
        uvloop.run(run(host, int(port), rate, asked))
        return 0
    print(f"over loopback, limited to {asked.megabits:.0f} Mb/s by a token bucket in the serving process")
    told: multiprocessing.Queue[int] = multiprocessing.Queue()
    serving = multiprocessing.Process(target=_serving, args=(0, rate, told), daemon=True)
    serving.start()
    try:
        uvloop.run(run("127.0.0.1", told.get(timeout=20), rate, asked))
    finally:
        serving.terminate()
        serving.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
