"""A line's status: what agents at both ends and routers measured, as conditions that say what to do."""

from typing import Any

import pytest

from pdd_operator.api.wan_link import LinkPath, RoundTrip, WANLink, WANLinkStatus
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import find
from pdd_operator.status.link import link_status
from pdd_operator.status.link_directions import End, Report
from pdd_operator.status.measurements import Measurements

from .example import link

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
A, B = "site-a", "site-b"


def agent(
    site: str,
    *,
    heard: int | None = 0,
    echoed: int | None = 0,
    sent: int = 600,
    p50: int = 20_350,
    loss: str = "0",
    mtu: dict[str, Any] | None = None,
    jitter: int = 300,
) -> Measurements:
    """An agent's document; `heard` and `echoed` are how many seconds ago, None for never."""
    trip = {"p50": p50, "p99": p50 + 750} if echoed is not None else None
    lanes = ("EF", "CS1")
    echoes = [
        {
            "trafficClass": lane, "sent": sent, "echoed": sent if echoed is not None else 0, "roundTripMicros": trip,
            "jitterMicros": jitter, "lossPercent": loss, "forwardLossPercent": loss if echoed is not None else None,
            "returnLossPercent": None, "lastEchoSecondsAgo": echoed,
        }
        for lane in lanes
    ]  # fmt: skip
    whole = {"bytes": 1450, "expectedBytes": 1450, "fullSizePasses": True, "forwardBytes": 1450, "returnBytes": 1450}
    return Measurements.model_validate(
        {
            "version": 1,
            "link": "a-b",
            "site": site,
            "heard": [{"trafficClass": lane, "received": 1, "lastHeardSecondsAgo": heard} for lane in lanes],
            "peers": [
                {"site": B if site == A else A, "host": "10.0.0.1", "classes": echoes, "pathMtu": whole | (mtu or {})}
            ],
        }
    )


def ends(*agents: Measurements, **problems: Problem) -> list[End]:
    return [
        End(
            site,
            ready=sum(each.site == site for each in agents),
            measurements=[each for each in agents if each.site == site],
            problem=problems.get(site.replace("-", "_")),
        )
        for site in (A, B)
    ]


def status(
    *agents: Measurements,
    found: WANLink | None = None,
    routers: list[Report] | None = None,
    due: bool = True,
    **problems: Problem,
) -> WANLinkStatus:
    return link_status(
        found or link(), ends(*agents, **problems), routers or [], numbers_due=due, now=LATER if found else NOW
    )


def brief(of: WANLinkStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in of.conditions}


def report(*, reachable: bool = True, p50: int | None = 20_350, p99: int | None = 21_100) -> Report:
    return Report(A, B, reachable, p50, p99)


def test_all_is_well() -> None:
    found = status(agent(A), agent(B), agent(B))
    assert brief(found) == {
        "Ready": ("True", "Answering"),
        "Provisioned": ("True", "AgentsRun"),
        "Established": ("True", "EchoesReturn"),
        "Reachable": ("True", "Answering"),
        "PathMTUValid": ("True", "FullSizePasses"),
        "LatencyWithinBudget": ("True", "WithinBudget"),
    }
    assert found.round_trip == "20ms"
    assert found.paths[0] == LinkPath(
        from_=A, to=B, traffic_class="EF", round_trip_micros=RoundTrip(p50=20_000, p99=21_000), jitter_micros=300,
        loss_percent="0", mtu_bytes=1450,
    )  # fmt: skip
    assert [(path.from_, path.traffic_class) for path in found.paths] == [(A, "EF"), (A, "CS1"), (B, "EF"), (B, "CS1")]


SILENT: dict[str, Any] = {"heard": 60, "echoed": 60}
DIRECTIONS: dict[str, tuple[list[Measurements], list[Report], tuple[str, str], str]] = {
    "all dead": ([agent(A, **SILENT), agent(B, **SILENT)], [], ("False", "BothDirectionsDead"), "nothing crosses"),
    "never met": (
        [agent(A, heard=None, echoed=None), agent(B, heard=None, echoed=None)],
        [],
        ("False", "BothDirectionsDead"),
        "nothing crosses",
    ),
    "a to b dead": (
        [agent(A, heard=0, echoed=60), agent(B, **SILENT)],
        [],
        ("False", "OneDirectionDead"),
        "nothing crosses from site-a to site-b; the direction site-b to site-a works",
    ),
    "b to a dead": (
        [agent(A, **SILENT), agent(B, heard=1, echoed=60)],
        [],
        ("False", "OneDirectionDead"),
        "nothing crosses from site-b to site-a; the direction site-a to site-b works",
    ),
    "b cannot be asked and a hears nothing": (
        [agent(A, **SILENT)],
        [],
        ("Unknown", "NoMeasurement"),
        "neither link agents nor front routers",
    ),
    "b cannot be asked, but a hears it and gets no echo": (
        [agent(A, heard=0, echoed=60)],
        [report(reachable=False)],
        ("False", "OneDirectionDead"),
        "nothing crosses from site-a to site-b; the direction site-b to site-a works",
    ),
    "b cannot be asked and its router does not answer": (
        [agent(A, **SILENT)],
        [report(reachable=False)],
        ("False", "NoAnswer"),
        "site-a hears nothing of the other end",
    ),
    "b cannot be asked and echoes return": ([agent(A)], [], ("True", "Answering"), "both"),
    "UDP blocked": (
        [agent(A, **SILENT), agent(B, **SILENT)],
        [report()],
        ("True", "RouterAnswers"),
        "router answers",
    ),
    "no agents": ([], [report()], ("True", "RouterAnswers"), "router answers"),
    "no agents and no answer": ([], [report(reachable=False)], ("False", "NoAnswer"), "not answered"),
    "one of two agents of b is cut off": (
        [agent(A), agent(B), agent(B, **SILENT)],
        [],
        ("True", "Answering"),
        "both",
    ),
    "b's agents were only just started": (
        [agent(A, heard=None, echoed=None, sent=0), agent(B, heard=None, echoed=None, sent=0)],
        [],
        ("Unknown", "NoMeasurement"),
        "neither",
    ),
}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_directions(name: str) -> None:
    agents, routers, wanted, said = DIRECTIONS[name]
    found = status(*agents, routers=routers)
    assert brief(found)["Reachable"] == wanted
    assert brief(found)["Ready"] == wanted
    condition = find(found.conditions, "Reachable")
    assert condition is not None
    assert said in condition.message


def test_probes_that_do_not_pass_where_routers_do() -> None:
    found = status(agent(A, **SILENT), agent(B, **SILENT), routers=[report()])
    condition = find(found.conditions, "Established")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NoEcho")
    assert "UDP" in condition.message


NARROW = {"bytes": 1400, "fullSizePasses": False}


@pytest.mark.parametrize(
    ("here", "there", "where"),
    [
        ({"forwardBytes": 1400}, {"returnBytes": 1400}, "from site-a to site-b"),
        ({"returnBytes": 1400}, {"forwardBytes": 1400}, "from site-b to site-a"),
        ({"forwardBytes": 1400, "returnBytes": 1400}, {"forwardBytes": 1400, "returnBytes": 1400}, "on the line"),
    ],
)
def test_a_black_hole(here: dict[str, Any], there: dict[str, Any], where: str) -> None:
    found = status(agent(A, mtu=NARROW | here), agent(B, mtu=NARROW | there))
    assert brief(found)["PathMTUValid"] == ("False", "BlackHole")
    assert brief(found)["Ready"] == ("False", "BlackHole")
    condition = find(found.conditions, "PathMTUValid")
    assert condition is not None
    assert f"packets above 1400 bytes vanish {where}" in condition.message
    assert "MTU to 1400" in condition.message


def test_a_dead_line_is_no_black_hole() -> None:
    found = status(agent(A, mtu=NARROW, **SILENT), agent(B, mtu=NARROW, **SILENT))
    assert brief(found)["PathMTUValid"] == ("Unknown", "NotReachable")
    assert brief(found)["LatencyWithinBudget"] == ("Unknown", "NotMeasured")


@pytest.mark.parametrize(("loss", "wanted"), [("0", "True"), ("0.333", "True"), ("0.5", "False"), ("1.2", "False")])
def test_loss_is_judged_by_more_than_chance(loss: str, wanted: str) -> None:
    """Of 600 packets 0.6 may be lost: two can be chance, three hardly."""
    tight = link(budget={"lossPercent": "0.1"})
    found = link_status(tight, ends(agent(A, loss=loss), agent(B)), [], numbers_due=True, now=NOW)
    assert brief(found)["LossWithinBudget"][0] == wanted
    if wanted == "False":
        condition = find(found.conditions, "LossWithinBudget")
        assert condition is not None
        assert "from site-a to site-b" in condition.message


def test_budgets() -> None:
    slow = link(budget={"roundTrip": "10ms"})
    assert brief(link_status(slow, ends(agent(A), agent(B)), [], numbers_due=True, now=NOW))["LatencyWithinBudget"] == (
        "False",
        "OverBudget",
    )
    shaky = link(budget={"jitter": "2ms"})
    for jitter, wanted in ((1_900, "True"), (5_000, "False")):
        measured = ends(agent(A, jitter=jitter), agent(B))
        assert brief(link_status(shaky, measured, [], numbers_due=True, now=NOW))["LatencyWithinBudget"][0] == wanted
    without = brief(link_status(link(budget={}), ends(agent(A), agent(B)), [], numbers_due=True, now=NOW))
    assert not {"LatencyWithinBudget", "LossWithinBudget"} & without.keys()


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (Problem("Forbidden", "no rights"), ("False", "Forbidden")),
        (Problem("MemberUnreachable", "gone", needs_help=False), ("Unknown", "MemberUnreachable")),
    ],
)
def test_an_end_that_cannot_be_provisioned(problem: Problem, wanted: tuple[str, str]) -> None:
    found = status(agent(A), site_b=problem)
    assert brief(found)["Provisioned"] == wanted
    assert brief(found)["Ready"] == ("True", "Answering")  # echoes come back: the line works


@pytest.mark.parametrize(
    ("p50", "due", "written"),
    [(20_350, True, 20_000), (21_900, True, 20_000), (23_000, True, 23_000), (80_000, False, 20_000)],
)
def test_jitter_is_not_written(p50: int, due: bool, written: int) -> None:
    found = link()
    found.status = status(agent(A), agent(B))
    after = status(agent(A, p50=p50), agent(B), found=found, due=due)
    assert after.paths[0].round_trip_micros is not None
    assert after.paths[0].round_trip_micros.p50 == written
    assert (after == found.status) == (written == 20_000)


def test_the_last_numbers_stay_while_nothing_is_measured() -> None:
    found = link()
    found.status = status(agent(A), agent(B))
    assert status(found=found, routers=[]).paths == found.status.paths
    assert status(agent(A, **SILENT), agent(B, heard=60, echoed=None), found=found).round_trip == "20ms"


def test_routers_are_believed_where_there_are_no_agents() -> None:
    found = status(routers=[report(), report(p50=30_000, p99=40_000), report(p50=None, p99=None)])
    assert [path.round_trip_micros for path in found.paths] == [RoundTrip(p50=30_000, p99=40_000)]
    assert found.round_trip == "30ms"


def test_what_an_agent_keeps_of_a_silent_peer_is_no_verdict() -> None:
    """Its last full-size packets did not pass; that was before it fell silent."""
    silent = agent(A, mtu=NARROW, **SILENT)
    silent.peers.extend(agent(A).peers)
    assert brief(status(silent, agent(B)))["PathMTUValid"] == ("True", "FullSizePasses")
    passed = brief(status(agent(A, **SILENT), agent(B, **SILENT), routers=[report()]))
    assert passed["PathMTUValid"] == ("Unknown", "NotMeasured")


def test_an_end_that_was_not_read_once_keeps_its_numbers() -> None:
    found = link()
    found.status = status(agent(A), agent(B))
    assert status(agent(A), found=found).paths == found.status.paths


def test_numbers_of_agents_take_the_place_of_those_of_routers() -> None:
    found = link()
    found.status = status(routers=[Report("a-third", B, True, 1_000, 2_000), report()])
    after = status(agent(A), agent(B), found=found, routers=[report()])
    assert {path.from_ for path in after.paths} == {A, B, "a-third"}
