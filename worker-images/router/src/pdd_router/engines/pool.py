"""The engines of one role: who is ready, what they are, who takes the next prompt."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pdd_router.engines.client import Engine
from pdd_router.errors import UnavailableError
from pdd_router.policy.affinity import Candidate, PrefixIndex, chunk_hashes, pick
from pdd_router.policy.compatibility import form


@dataclass(frozen=True)
class Endpoint:
    """A ready pod behind a Service, as its EndpointSlice tells."""

    name: str
    url: str


class EnginePool:
    """Follows the ready endpoints of one Service. An engine is usable once it has told its facts, while it answers."""

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
    def known(self) -> list[Engine]:
        return [engine for engine in self._engines.values() if engine.known]

    @property
    def usable(self) -> list[Engine]:
        return [engine for engine in self.known if not engine.aside]

    def can_read(self, reads: Sequence[Any]) -> bool:
        """Whether there is an engine for a KV cache of this form."""
        return any(form(engine.facts.model_dump()) == list(reads) for engine in self.usable)

    def take(
        self, token_ids: Sequence[int], *, reads: Sequence[Any] | None = None, avoid: Collection[str] = ()
    ) -> Engine:
        """The engine for this prompt, by prefix affinity and load.

        `reads` is the form of the KV cache that it is to read (policy/compatibility.py); engines named in `avoid` have
        just failed, and are taken only where there is no other. Raises UnavailableError.
        """
        fit = {e.name: e for e in self.usable if reads is None or form(e.facts.model_dump()) == list(reads)}
        if not fit:
            if self.usable:
                raise UnavailableError(
                    f"no {self.role} engine has the prefill engine's model and KV format; see condition KVCompatible"
                )
            raise UnavailableError(f"no {self.role} engine is ready; see the deployment's status")
        fit = {name: engine for name, engine in fit.items() if name not in avoid} or fit
        hashes = chunk_hashes(token_ids)
        name = pick([Candidate(e.name, e.in_flight) for e in fit.values()], self._prefixes.matches(hashes))
        self._prefixes.record(hashes, name)
        return fit[name]

    def named(self, name: str) -> Engine:
        """Raises UnavailableError when the engine is gone or put aside."""
        for engine in self.usable:
            if engine.name == name:
                return engine
        raise UnavailableError(f"{self.role} engine {name} is gone")
