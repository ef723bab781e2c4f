import pytest

from pdd_e2e.traces import prefix_hits, sessions


@pytest.mark.parametrize("scale", [1 / 40, 1 / 20])
def test_scaling_keeps_lengths_and_prefix_structure(scale: float) -> None:
    small = list(sessions(scale=scale, output_scale=1 / 8, max_output=24))
    large = list(sessions(scale=scale * 4, output_scale=1 / 8, max_output=24))
    assert len(small) == 6
    for a, b in zip(small, large, strict=True):
        assert [len(t.token_ids) for t in a] == pytest.approx([len(t.token_ids) / 4 for t in b], abs=1)
        assert prefix_hits(a) == pytest.approx(prefix_hits(b), abs=0.01)


def test_sessions_share_nothing_with_each_other() -> None:
    firsts = [tuple(turns[0].token_ids[:8]) for turns in sessions(scale=1 / 40, output_scale=1 / 8, max_output=24)]
    assert len(set(firsts)) == len(firsts)
