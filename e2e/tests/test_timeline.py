from pdd_e2e.timeline import timeline

RELAYED = {
    "pipeline": "P-RLD-MD",
    "line_bytes": 69_304_320,
    "eager_tokens": 12,
    "output_tokens": 48,
    "seconds": {
        "prefill": 2.0, "ttft": 3.0, "transfer_began": 2.0, "transfer": 4.0,
        "handed_over": 6.0, "handoff": 1.0, "total": 10.0,
    },
}  # fmt: skip


def test_spans_are_to_scale() -> None:
    answer, line, *legend = timeline(RELAYED, 108).splitlines()
    assert answer.split() == ["answer", "P" * 20 + "R" * 40 + "." * 10 + "M" * 30]
    assert line.split() == ["line", "." * 20 + "~" * 40 + "." * 40]
    assert "69.3 MB" in legend[1]
    assert "12 eager tokens" in legend[1]


def test_the_direct_way_has_no_relay() -> None:
    seconds = {"prefill": 2.0, "ttft": 7.0, "transfer_began": 2.0, "transfer": 4.0, "total": 10.0}
    answer, _, *legend = timeline(RELAYED | {"pipeline": "P-MD", "seconds": seconds}, 108).splitlines()
    assert answer.split() == ["answer", "P" * 20 + "." * 50 + "M" * 30]
    assert "handoff" not in legend[1]
