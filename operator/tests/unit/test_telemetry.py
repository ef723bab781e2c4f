"""What front routers report is read once for all who need it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.clusters.errors import ApiError
from pdd_operator.clusters.registry import Registry
from pdd_operator.plan.problem import Problem
from pdd_operator.telemetry import Telemetry

from .example import deployment


def _document(checked: int) -> dict[str, Any]:
    return {"version": 1, "links": [], "compatibility": {"checked": checked, "mismatches": []}}


class Site:
    """A prefill cluster with front routers, and the registry that knows it."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"front-0": _document(3), "front-1": _document(3)}
        self.asked: list[str] = []
        self.connected = True
        self.changed: list[str] = []
        self.telemetry = Telemetry(cast("Registry", self), changed=self._noticed)

    def get(self, name: str) -> Any:
        assert name == "site-a"
        return SimpleNamespace(session=self, connected=self.connected)

    name = "site-a"

    async def list(self, *_: object, selector: str) -> list[dict[str, Any]]:
        uid = "00000000-0000-0000-0000-000000000001"
        assert selector == f"pdd.dev/deployment-uid={uid},app.kubernetes.io/component=front-router"
        starting = {"metadata": {"name": "starting", "namespace": "llm"}, "status": {"phase": "Pending"}}
        running = [
            {"metadata": {"name": name, "namespace": "llm"}, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
            for name in self.answers
        ]
        return [starting, *running]

    async def through_pod(self, _: str, pod: str, port: int, path: str) -> dict[str, Any]:
        assert (port, path) == (8000, "telemetry")
        self.asked.append(pod)
        answer = self.answers[pod]
        if isinstance(answer, Exception):
            raise answer
        return cast("dict[str, Any]", answer)

    def _noticed(self, found: PDDDeployment) -> None:
        self.changed.append(found.metadata.name)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_every_running_router_is_asked_once_for_two_readers(site: Site) -> None:
    answers = await site.telemetry.read(deployment())
    assert site.asked == ["front-0", "front-1"]
    assert await site.telemetry.recent(deployment()) is answers
    assert len(site.asked) == 2


async def test_what_was_read_is_forgotten_with_its_deployment(site: Site) -> None:
    await site.telemetry.read(deployment())
    site.telemetry.forget("llm", "assistant")
    await site.telemetry.recent(deployment())
    assert len(site.asked) == 4


async def test_what_was_read_too_long_ago_is_read_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.telemetry.read(deployment())
    monkeypatch.setattr("pdd_operator.telemetry._FRESH", 0.0)
    await site.telemetry.recent(deployment())
    assert len(site.asked) == 4


@pytest.mark.parametrize("broken", [ApiError(503, "connection refused"), {"links": "nonsense"}])
async def test_a_router_that_does_not_answer_does_not_hide_the_others(site: Site, broken: Any) -> None:
    site.answers["front-0"] = broken
    answers = await site.telemetry.read(deployment())
    assert not isinstance(answers, Problem)
    assert len(answers) == 1

    site.answers["front-1"] = broken
    nothing = await site.telemetry.read(deployment())
    assert isinstance(nothing, Problem)
    assert nothing.message == "the front router of llm/assistant on site-a does not report yet"


async def test_a_lost_member_is_not_asked(site: Site) -> None:
    site.connected = False
    answers = await site.telemetry.read(deployment())
    assert isinstance(answers, Problem)
    assert answers.reason == "MemberUnreachable"
    assert not site.asked


async def test_the_deployment_is_woken_when_its_engines_compare_differently(site: Site) -> None:
    await site.telemetry.read(deployment())
    await site.telemetry.read(deployment())
    assert not site.changed
    site.answers["front-1"] = _document(5)
    await site.telemetry.read(deployment())
    assert site.changed == ["assistant"]
