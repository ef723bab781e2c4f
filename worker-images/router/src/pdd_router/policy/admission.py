"""How many tokens of KV cache an MD has promised, and who waits for room.

vLLM would take any number of requests, and then preempt running ones to make room for KV that arrives. So the main
router reserves each prompt's blocks before the transfer is asked for, and lets what does not fit wait in the order in
which it came.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil


@dataclass(eq=False)
class Claim:
    """Blocks that a request needs; `granted` once they are its own."""

    blocks: int
    granted: bool = False


@dataclass
class Room:
    """Of one engine. Raises nothing: a claim larger than the whole cache is granted when the engine is empty, and vLLM
    then says what is wrong with it."""

    capacity_blocks: int
    most_waiting: int
    taken: int = 0
    waiting: deque[Claim] = field(default_factory=deque)

    def claim(self, blocks: int) -> Claim | None:
        """None when too many wait already."""
        claim = Claim(blocks)
        if not self.waiting and self._fits(claim):
            self._grant(claim)
            return claim
        if len(self.waiting) >= self.most_waiting:
            return None
        self.waiting.append(claim)
        return claim

    def take(self, blocks: int) -> Claim:
        """Room for what is there already: counted, never refused."""
        claim = Claim(blocks)
        self._grant(claim)
        return claim

    def give_back(self, claim: Claim) -> list[Claim]:
        """Also ends a wait. Returns the claims that got room by it, in the order in which they came."""
        if claim.granted:
            claim.granted = False
            self.taken -= claim.blocks
        elif claim in self.waiting:
            self.waiting.remove(claim)
        granted = []
        while self.waiting and self._fits(self.waiting[0]):
            granted.append(self.waiting.popleft())
            self._grant(granted[-1])
        return granted

    def _fits(self, claim: Claim) -> bool:
        return self.taken == 0 or self.taken + claim.blocks <= self.capacity_blocks

    def _grant(self, claim: Claim) -> None:
        claim.granted = True
        self.taken += claim.blocks


def blocks_of(tokens: int, block_size: int) -> int:
    """Whole blocks, and one more for the first tokens of the answer."""
    return ceil(tokens / block_size) + 1
