"""Which engine of a role takes a prompt: the one with most of it in its prefix cache, unless it is busy."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Prompts are compared in chunks of this many tokens. Coarser than an engine's blocks: a mistake of less
# than a chunk costs little, and the index of a 100K-token prompt stays below 1,000 entries.
CHUNK = 128

# An engine that holds the prefix is passed over once it has this many more requests than the idlest.
SLACK = 4


def chunk_hashes(token_ids: Sequence[int]) -> list[int]:
    """One hash for each whole chunk, each over all the tokens up to its end."""
    hashes: list[int] = []
    previous = 0
    for end in range(CHUNK, len(token_ids) + 1, CHUNK):
        previous = hash((previous, tuple(token_ids[end - CHUNK : end])))
        hashes.append(previous)
    return hashes


def extends(hashes: Sequence[int], earlier: Sequence[int]) -> bool:
    """Whether at least half of a prompt is the beginning of an earlier one; both as `chunk_hashes`."""
    common = next((n for n, (a, b) in enumerate(zip(hashes, earlier, strict=False)) if a != b), None)
    shared = min(len(hashes), len(earlier)) if common is None else common
    return 0 < len(hashes) <= 2 * shared


class PrefixIndex:
    """Which engines were given which prefixes. Bounded: the least recently used are forgotten."""

    def __init__(self, capacity: int = 200_000):
        self._capacity = capacity
        self._holders: OrderedDict[int, set[str]] = OrderedDict()

    def record(self, hashes: Iterable[int], engine: str) -> None:
        for key in hashes:
            self._holders.setdefault(key, set()).add(engine)
            self._holders.move_to_end(key)
        while len(self._holders) > self._capacity:
            self._holders.popitem(last=False)

    def matches(self, hashes: Sequence[int]) -> dict[str, int]:
        """For each engine that holds some of the prefix: of how many leading chunks."""
        depth: dict[str, int] = {}
        for position, key in enumerate(hashes):
            holders = self._holders.get(key)
            if not holders:
                break
            for engine in holders:
                if depth.get(engine, 0) == position:
                    depth[engine] = position + 1
        return depth

    def keep_only(self, engines: set[str]) -> None:
        """Forget engines that are gone: a new pod has an empty cache, whatever its name."""
        for key in [key for key, holders in self._holders.items() if not holders <= engines]:
            self._holders[key] &= engines
            if not self._holders[key]:
                del self._holders[key]


@dataclass(frozen=True)
class Candidate:
    name: str
    in_flight: int


def pick(candidates: Sequence[Candidate], matches: Mapping[str, int]) -> str:
    """The name of the engine to use. Raises ValueError without candidates."""
    if not candidates:
        raise ValueError("no engine to pick from")
    idlest = min(candidate.in_flight for candidate in candidates)
    fit = [candidate for candidate in candidates if candidate.in_flight <= idlest + SLACK]
    return min(fit, key=lambda c: (-matches.get(c.name, 0), c.in_flight, c.name)).name
