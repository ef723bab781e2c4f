"""The engines of one role: who is ready, what they are, who takes the next prompt."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pdd_router.engines.client import Engine
from pdd_router.errors import UnavailableError
from pdd_router.policy.affinity import Candidate, PrefixIndex, chunk_hashes, pick


@dataclass(frozen=True)
class Endpoint:
    """A ready pod behind a Service, as its EndpointSlice tells."""

    name: str
    url: str


class EnginePool:
    """Follows the ready endpoints of one Service. An engine is usable once it has told its facts."""

    def __init__(self, role: str, connect: Callable[[Endpoint], Engine]):
        self.role = role
        self._connect = connect
        self._engines: dict[Endpoint, Engine] = {}
        self._prefixes = PrefixIndex()

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        there = set(endpoints)
        self._engines = {e: self._engines.get(e) or self._connect(e) for e in there}
        self._prefixes.keep_only({e.name for e in there})

    @property
    def unknown(self) -> list[Engine]:
        return [engine for engine in self._engines.values() if not engine.known]

    @property
    def usable(self) -> list[Engine]:
        return [engine for engine in self._engines.values() if engine.known]

    def take(self, token_ids: Sequence[int]) -> Engine:
        """The engine for this prompt, by prefix affinity and load. Raises UnavailableError."""
        usable = {engine.name: engine for engine in self.usable}
        if not usable:
            raise UnavailableError(f"no {self.role} engine is ready; see the deployment's status")
        hashes = chunk_hashes(token_ids)
        name = pick([Candidate(e.name, e.in_flight) for e in usable.values()], self._prefixes.matches(hashes))
        self._prefixes.record(hashes, name)
        return usable[name]

    def named(self, name: str) -> Engine:
        """Raises UnavailableError when the engine is gone."""
        for engine in self.usable:
            if engine.name == name:
                return engine
        raise UnavailableError(f"{self.role} engine {name} is gone")
