"""A seeded run of requests and faults: the same seed asks the same and breaks the same, in the same order."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pdd_e2e.asking import Outcome, ask
from pdd_e2e.engines import Role
from pdd_e2e.prompts import prompt

PROMPTS = [(length, seed) for seed, length in enumerate([5, 31, 32, 64, 100, 160, 257, 400, 513, 700, 1000, 1500])]
MOST_TOKENS = 120
# How long a client goes on asking while it is told to come again later.
PATIENCE_SECONDS = 240.0


@dataclass(frozen=True)
class Breakage:
    """A way to break a part: `act` does it and mends it after so many seconds, where it does not mend by itself."""

    part: str
    what: str
    act: Callable[[float], None]
    seconds: tuple[float, float] = (0.0, 0.0)
    """The shortest and the longest."""


@dataclass(frozen=True)
class Fault:
    """One breakage once so many requests have begun."""

    after: int
    breakage: Breakage
    seconds: float

    def __str__(self) -> str:
        duration = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"after {self.after} requests: {self.breakage.part} {self.breakage.what}{duration}"


def faults(seed: int, requests: int, breakages: Sequence[Breakage]) -> list[Fault]:
    """Each breakage once, and a quarter of them again, in an order, at requests and for times drawn from the seed."""
    random_ = random.Random(seed)
    drawn = [*breakages, *random_.sample(breakages, len(breakages) // 4)]
    random_.shuffle(drawn)
    places = sorted(random_.sample(range(requests // 20, requests * 9 // 10), len(drawn)))
    return [Fault(place, each, random_.uniform(*each.seconds)) for place, each in zip(places, drawn, strict=True)]


@dataclass(frozen=True)
class Plan:
    """One request."""

    prompt: tuple[int, int]
    max_tokens: int
    stream: bool
    headers: dict[str, str]
    leave_after_seconds: float | None


def plan(seed: int, count: int) -> list[Plan]:
    random_ = random.Random(seed)
    return [_one(random_) for _ in range(count)]


def _one(random_: random.Random) -> Plan:
    headers: dict[str, str] = {}
    way = random_.random()
    if way < 0.4:
        headers = {"X-PDD-Pipeline": "P-RLD-MD"}
        if way < 0.25:
            headers["X-PDD-Cut"] = str(random_.randrange(MOST_TOKENS))
    elif way < 0.6:
        headers = {"X-PDD-Pipeline": "P-MD"}
    leave = random_.uniform(0.02, 2.0) if random_.random() < 0.2 else None
    return Plan(random_.choice(PROMPTS), random_.randint(1, MOST_TOKENS), random_.random() < 0.7, headers, leave)


def hang(role: Role) -> Callable[[float], None]:
    def act(seconds: float) -> None:
        pod = role.pod()
        role.signal_core(signal.SIGSTOP, pod)
        try:
            time.sleep(seconds)
        finally:
            role.signal_core(signal.SIGCONT, pod)

    return act


@dataclass
class Report:
    """`wrong`, `hung` and `whole` must be empty."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """What was to break and did not, with why."""
    resumed: int = 0
    told_to_come_again: int = 0

    def __str__(self) -> str:
        return (
            f"{dict(self.ends)}, {self.resumed} had trouble on the way, told to come again {self.told_to_come_again} "
            f"times; wrong: {self.wrong}; hung: {self.hung}; did not break: {self.whole}"
        )


def run(
    url: str,
    model: str,
    plans: Sequence[Plan],
    faults: Sequence[Fault],
    right: Callable[[tuple[int, int]], list[int]],
    *,
    clients: int,
    said: Callable[[str], None],
) -> Report:
    report, begun, lock = Report(), [0], threading.Lock()
    waiting = sorted(faults, key=lambda fault: fault.after)
    # What hangs is not killed before it goes on, and what was killed is back before it hangs.
    parts = {fault.breakage.part: threading.Lock() for fault in faults}
    acting: list[threading.Thread] = []

    def act(fault: Fault) -> None:
        with parts[fault.breakage.part]:
            said(str(fault))
            try:
                fault.breakage.act(fault.seconds)
            except Exception as error:
                report.whole.append(f"{fault}: {error}")

    def request(index: int) -> None:
        with lock:
            begun[0] += 1
            while waiting and waiting[0].after <= begun[0]:
                acting.append(threading.Thread(target=act, args=(waiting.pop(0),)))
                acting[-1].start()
        one, began = plans[index], time.monotonic()
        while True:
            try:
                outcome = _asked(url, model, one)
            except TimeoutError as error:
                report.hung.append(f"request {index}, {one}: {error}")
                return
            if outcome.status not in (429, 503) or time.monotonic() - began > PATIENCE_SECONDS:
                break
            with lock:
                report.told_to_come_again += 1
            time.sleep(2.0)
        with lock:
            _judge(report, index, one, outcome, right(one.prompt))

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(request, index) for index in range(len(plans))]:
            done.result()
    for thread in acting:
        thread.join()
    return report


def _asked(url: str, model: str, one: Plan) -> Outcome:
    more: dict[str, Any] = {"leave_after_seconds": one.leave_after_seconds, "ignore_eos": True}
    return ask(
        url,
        model,
        prompt(*one.prompt),
        max_tokens=one.max_tokens,
        stream=one.stream,
        headers=one.headers,
        patience=90,
        **more,
    )


def _judge(report: Report, index: int, one: Plan, outcome: Outcome, right: list[int]) -> None:
    report.resumed += bool(outcome.trace.get("trouble"))
    if outcome.complete:
        report.ends["complete"] += 1
        if outcome.ids != right[: one.max_tokens]:
            report.wrong.append(f"request {index}, {one}: {outcome}")
    elif outcome.ids != right[: len(outcome.ids)]:
        report.wrong.append(f"request {index}, {one}: {outcome}")
    elif outcome.error is not None:
        report.ends[f"error {outcome.status}"] += 1
    elif one.leave_after_seconds is not None:
        report.ends["left"] += 1
    else:
        report.wrong.append(f"request {index}, {one}: neither whole nor an error: {outcome}")
