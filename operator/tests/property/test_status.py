"""What holds of every status."""

from hypothesis import given
from hypothesis import strategies as st

from pdd_operator.api.base import Metadata
from pdd_operator.api.wan_link import LinkEnd, WANLink, WANLinkSpec
from pdd_operator.status.conditions import Finding, conditions
from pdd_operator.status.link import link_status
from pdd_operator.status.link_directions import End, Report
from pdd_operator.status.transitions import transitions

findings = st.lists(
    st.builds(
        Finding,
        type=st.sampled_from(["Ready", "Stalled", "Scheduled"]),
        status=st.sampled_from(["True", "False", "Unknown"]),
        reason=st.sampled_from(["A", "B"]),
        message=st.text(max_size=2000),
    ),
    unique_by=lambda finding: finding.type,
)
rounds = st.integers(100, 1_000_000)
reports = st.lists(
    st.builds(
        Report,
        origin=st.just("a"),
        peer=st.just("b"),
        reachable=st.booleans(),
        p50_micros=rounds,
        p99_micros=rounds,
    ),
    min_size=1,
    max_size=4,
)


@given(findings, findings)
def test_the_same_findings_again_change_nothing(before: list[Finding], after: list[Finding]) -> None:
    first = conditions(before, previous=[], generation=1, now="2026-01-01T00:00:00Z")
    second = conditions(after, previous=first, generation=1, now="2026-01-01T00:00:01Z")
    third = conditions(after, previous=second, generation=1, now="2026-01-01T00:00:02Z")
    assert third == second
    assert transitions(second, third) == []
    assert all(len(each.message) <= 1024 for each in third)


@given(reports, reports)
def test_a_link_status_settles(before: list[Report], after: list[Report]) -> None:
    link = WANLink(
        metadata=Metadata(name="a-b"),
        spec=WANLinkSpec(ends=[LinkEnd(cluster="a"), LinkEnd(cluster="b")], bandwidth="1G"),
    )
    ends = [End("a"), End("b")]
    link.status = link_status(link, ends, before, numbers_due=True, now="2026-01-01T00:00:00Z")
    link.status = link_status(link, ends, after, numbers_due=True, now="2026-01-01T00:00:01Z")
    assert link_status(link, ends, after, numbers_due=True, now="2026-01-01T00:00:02Z") == link.status
