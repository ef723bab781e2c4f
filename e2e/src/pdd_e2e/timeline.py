"""A request's trace as one line of text, to scale."""

from typing import Any

# Spans in the order in which they may overlap: a later one is drawn over an earlier one.
_PREFILL, _RELAY, _MAIN, _TRANSFER = "P", "R", "M", "~"


def timeline(trace: dict[str, Any], width: int) -> str:
    """Two rows (what the client sees, what the line does) and a legend; `trace` as the front router sends it."""
    seconds = trace["seconds"]
    total = seconds.get("total") or trace.get("total") or max(seconds.values())
    handed_over = seconds.get("handed_over")
    answering = [(0.0, seconds["prefill"], _PREFILL)]
    if trace["pipeline"] == "P-RLD-MD":
        answering.append((seconds["prefill"], handed_over or total, _RELAY))
    if handed_over is not None:
        answering.append((handed_over + seconds.get("handoff", 0.0), total, _MAIN))
    elif trace["pipeline"] == "P-MD":
        answering.append((seconds["ttft"], total, _MAIN))
    line = [(seconds["transfer_began"], seconds["transfer_began"] + seconds.get("transfer", 0.0), _TRANSFER)]
    bar = max(20, width - 8)
    legend = [f"prefill {seconds['prefill']:.2f} s", f"first token {seconds['ttft']:.2f} s"]
    if "transfer" in seconds:
        size = f", {trace['line_bytes'] / 1e6:.1f} MB" if trace.get("line_bytes") is not None else ""
        legend.append(f"transfer {seconds['transfer']:.2f} s{size}")
    if "handoff" in seconds:
        legend.append(f"handoff {seconds['handoff']:.2f} s after {trace['eager_tokens']} eager tokens")
    legend.append(f"total {total:.2f} s, {trace['output_tokens']} tokens")
    return (
        f"answer  {_draw(answering, total, bar)}\nline    {_draw(line, total, bar)}\n"
        f"        P prefill, R relay decode, M main decode, ~ KV on the line, . waiting\n        {'; '.join(legend)}"
    )


def _draw(spans: list[tuple[float, float, str]], total: float, width: int) -> str:
    cells = ["."] * width
    for begin, end, mark in spans:
        first = min(width - 1, int(begin / total * width))
        last = min(width, max(first + 1, round(end / total * width)))
        cells[first:last] = [mark] * (last - first)
    return "".join(cells)
