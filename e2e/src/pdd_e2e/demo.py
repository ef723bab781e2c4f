"""`pdd-demo`: PDD on two clusters, from nothing to an answer that both wrote."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pdd_e2e import client, deployments, environment, install, line, running
from pdd_e2e.client import Answer, Piece, Pipeline
from pdd_e2e.counters import Counted, counting
from pdd_e2e.environment import Images, Sites
from pdd_e2e.line import Crossed
from pdd_e2e.timeline import timeline
from pdd_e2e.traces import Turn, sessions

app = typer.Typer(add_completion=False, help=__doc__)
console = Console(highlight=False)

QUESTION = """You are given the notes of a meeting. Answer the question at the end in two sentences.

Notes: The harbour of Marseille was chosen as the place for the new research station, because the sea there is
deep close to the shore, because the university has a school of marine biology, and because the city offered an old
warehouse for the laboratories. The station will have twelve rooms, a library, and two boats. Work on the warehouse
begins in spring and takes fourteen months. The first group of scientists comes from Lisbon and studies how young
fish find the reefs on which they grow up. The second group comes from Bergen and measures how sound travels under
water. Both groups will share the boats, the larger of which can stay at sea for nine days. Local schools may visit
on the first Monday of each month. The budget is nine million for the first three years, of which the building takes
four, the boats two and the salaries three.

Question: Why was the harbour of Marseille chosen for the research station?"""

# Token colours by who made them.
COLOURS = {"RLD": "bright_yellow", "MD": "bright_cyan", "?": "white"}
# Trace lengths over 40: contexts of 20K to 90K tokens fit the small model's 4,096.
TRACE_SCALE = 1 / 40
TRACE_SESSIONS = 2
# Outputs are scaled less than prompts: a real answer takes as long as a real transfer, and so should these.
TRACE_OUTPUT_SCALE = 1 / 8
TRACE_OUTPUT = 48
# Between two turns an agent runs its tools.
THINK_SECONDS = 1.0


@contextmanager
def step(title: str) -> Iterator[None]:
    console.print(f"[bold]==> {title}[/bold]")
    start = time.monotonic()
    yield
    console.print(f"    [dim]{title}: done in {time.monotonic() - start:.0f} s[/dim]")


@app.command()
def run() -> None:
    """Everything: install, deploy, ask, replay."""
    sites, images = environment.sites(), environment.images()
    with step("Charts, members and the line"):
        install.install(sites, images)
    deploy(sites, images)
    with running.endpoint(sites, "assistant") as url:
        ask(url)
        replay(url)
    farewell(sites)


@app.command("ask")
def ask_command(question: str = typer.Argument(QUESTION), tokens: int = 48) -> None:
    """Asks the running deployment, and shows who made each token."""
    with running.endpoint(environment.sites(), "assistant") as url:
        ask(url, question, tokens)


def deploy(sites: Sites, images: Images) -> None:
    with step("PDDDeployment assistant: prefill and relay decode in site-a, main decode in site-b"):
        for other in sites.a.list(running.KIND, "-n", deployments.NAMESPACE):
            if (name := other["metadata"]["name"]) != "assistant":
                console.print(f"    making room: deleting PDDDeployment {name}")
                sites.a.delete(running.KIND, name, deployments.NAMESPACE)
        sites.a.apply(deployments.assistant(images))
        start = time.monotonic()

        def progress(line: str) -> None:
            console.print(f"    [dim]{time.monotonic() - start:4.0f} s[/dim]  {escape(line)}")

        running.wait_ready(sites.a, "assistant", progress)
    console.print(sites.a.kubectl("get", running.KIND, "-n", deployments.NAMESPACE).rstrip(), style="dim")


def ask(url: str, question: str = QUESTION, tokens: int = 48) -> None:
    console.print("\n[bold]==> One question, through P, RLD and MD[/bold]")
    console.print(f"    {escape(question.strip().splitlines()[-1])}")
    key = "  ".join(f"[{COLOURS[who]}]{who}: {where}[/]" for who, where in (("RLD", "site-a"), ("MD", "site-b")))
    console.print(f"    {key}\n")

    def show(piece: Piece) -> None:
        console.print(piece.text, style=COLOURS[piece.by], end="", markup=False)

    answer = client.chat(
        client.connect(url),
        "assistant",
        [{"role": "user", "content": question}],
        max_tokens=tokens,
        pipeline="P-RLD-MD",
        each=show,
        cache_salt=str(time.time()),  # asked again, it is new again
    )
    console.print(f"\n\n{timeline(answer.trace, console.width - 4)}\n")


def replay(url: str) -> None:
    """The same sessions twice, each time with caches of its own: as the router chooses, and P-MD only."""
    console.print(f"[bold]==> {TRACE_SESSIONS} real coding-agent sessions, lengths over {1 / TRACE_SCALE:.0f}[/bold]")
    chosen = list(sessions(scale=TRACE_SCALE, output_scale=TRACE_OUTPUT_SCALE, max_output=TRACE_OUTPUT))[
        :TRACE_SESSIONS
    ]
    salt = str(time.time())
    pdd = _replay(url, chosen, None, f"pdd {salt}")
    direct = _replay(url, chosen, "P-MD", f"direct {salt}")
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("", "PDD", "P-MD only"):
        table.add_column(column, justify="left" if not column else "right")
    for label, figure in _FIGURES.items():
        table.add_row(label, figure(pdd), figure(direct))
    console.print(table)
    console.print(
        "    [dim]On a machine of two cores that plays all three engines, RLD decodes while MD's pull takes its "
        "cores: read the bytes, hits and shares, and the TTFT only against its neighbour.[/dim]"
    )


@dataclass
class Replayed:
    answers: list[Answer]
    counted: Counted
    crossed: Crossed | None

    @property
    def ttfts(self) -> list[float]:
        return sorted(answer.ttft for answer in self.answers)


def _replay(url: str, chosen: list[list[Turn]], pipeline: Pipeline | None, salt: str) -> Replayed:
    openai = client.connect(url)
    answers: list[Answer] = []
    with (
        console.status("") as status,
        line.crossing() if line.countable() else nullcontext() as crossed,
        counting(url) as counted,
    ):
        for turns in chosen:
            for turn in turns:
                status.update(f"{pipeline or 'PDD'}: session {turn.session}, turn {turn.number + 1} of {len(turns)}")
                answers.append(
                    client.complete(
                        openai,
                        "assistant",
                        turn.token_ids,
                        max_tokens=turn.output_tokens,
                        pipeline=pipeline,
                        ignore_eos=True,
                        cache_salt=f"{salt} {turn.session}",
                    )
                )
                time.sleep(THINK_SECONDS)
    return Replayed(answers, counted, crossed)


_FIGURES: dict[str, Callable[[Replayed], str]] = {
    "requests": lambda r: str(len(r.answers)),
    "through the relay": lambda r: str(sum(a.trace["pipeline"] == "P-RLD-MD" for a in r.answers)),
    "prompt tokens": lambda r: f"{r.counted.prompt_tokens:,}",
    "hit at P": lambda r: f"{r.counted.cached_at_prefill / r.counted.prompt_tokens:.1%}",
    "hit at MD": lambda r: f"{r.counted.cached_at_main / r.counted.prompt_tokens:.1%}",
    "KV asked for": lambda r: f"{r.counted.line_bytes / 1e6:.1f} MB",
    "bytes on the line": lambda r: f"{r.crossed.a_to_b / 1e6:.1f} MB" if r.crossed else "not counted",
    "eager tokens": lambda r: f"{r.counted.by_relay / (r.counted.by_relay + r.counted.by_main):.1%}",
    "TTFT median": lambda r: f"{statistics.median(r.ttfts):.2f} s",
    "TTFT p90": lambda r: f"{r.ttfts[int(len(r.ttfts) * 0.9)]:.2f} s",
}


def farewell(sites: Sites) -> None:
    namespace = deployments.NAMESPACE
    kubectl = f"kubectl --kubeconfig {sites.a.kubeconfig}"
    console.print("\n[bold]It goes on running. What to try next:[/bold]")
    for what, command in (
        ("its state", f"{kubectl} get pddd,wanlinks,memberclusters -n {namespace}"),
        ("the endpoint here", f"{kubectl} -n {namespace} port-forward svc/assistant 8000:8000"),
        ("another question", ".venv/bin/pdd-demo ask 'Why is the sky blue?'"),
        ("a slower line", "make wan RATE=20mbit DELAY=50ms"),
        ("a cut line", "make wan-down; make wan-up"),
        ("the end", "make down"),
    ):
        console.print(f"  {what:18} {escape(command)}", soft_wrap=True)


if __name__ == "__main__":
    app()
