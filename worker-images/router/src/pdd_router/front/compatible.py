"""Which engines fit together, for the operator's telemetry and the metrics."""

from typing import Any

from pdd_router import metrics
from pdd_router.engines.client import Engine
from pdd_router.engines.renderers import Renderer
from pdd_router.policy.compatibility import Party, mismatches


class Compatibility:
    """Counts each mismatch once, when it is first seen. Pairs that do not fit are never used: EnginePool.take."""

    def __init__(self, site: str):
        self._site = site
        self._seen: set[tuple[str, str, str]] = set()

    def report(
        self, prefill: list[Engine], relay: list[Engine], renderers: list[Renderer], main: list[Party]
    ) -> dict[str, Any]:
        """The `compatibility` of `/telemetry`, as `docs/design/contracts.md` has it."""
        parties = [self._party(engine) for engine in prefill]
        others = [self._party(engine) for engine in relay] + main
        others += [
            Party(renderer.name, self._site, "renderer", renderer.facts.model_dump())
            for renderer in renderers
            if renderer.facts is not None
        ]
        found = mismatches(parties, others)
        seen = {(m.field, m.prefill.engine, m.other.engine) for m in found}
        for mismatch in found:
            if (mismatch.field, mismatch.prefill.engine, mismatch.other.engine) not in self._seen:
                metrics.REFUSED_PAIRS.labels(mismatch.other.role, mismatch.field).inc()
        self._seen = seen
        checked = len(parties) + len(others) if parties and main else 0
        return {"checked": checked, "mismatches": [mismatch.body() for mismatch in found]}

    def _party(self, engine: Engine) -> Party:
        return Party(engine.name, self._site, engine.facts.role, engine.facts.model_dump())
