"""What the MDs of a site hold, as far as this router sent it: how much of a prompt will have to cross the line.

For the order of transfers only. Which pipeline a request takes is decided on P's hit, never on this
(policy/pipeline.py).
"""

from collections.abc import Sequence
from contextlib import ExitStack

from pdd_router.policy.affinity import CHUNK, PrefixIndex, chunk_hashes, common


class Held:
    def __init__(self) -> None:
        self._sent = PrefixIndex()
        self._on_its_way: dict[object, list[int]] = {}

    def tokens(self, token_ids: Sequence[int], *, cached_at_prefill: int) -> int:
        """Of a prompt's beginning.

        What P had in its cache went to MD with an earlier request, through another router maybe: both pipelines end
        there. But not yet, if that request's transfer is on its way.
        """
        hashes = chunk_hashes(token_ids)
        sent = self._known(hashes)
        for other in self._on_its_way.values():
            if CHUNK * common(hashes, other) > sent:
                return sent
        return max(sent, cached_at_prefill)

    def sent(self, token_ids: Sequence[int]) -> int:
        """Of a prompt's beginning, what one of them is known to hold."""
        return self._known(chunk_hashes(token_ids))

    def on_its_way(self, token_ids: Sequence[int]) -> ExitStack:
        """Until it is closed, the transfer of this prompt is on its way."""
        key = object()
        self._on_its_way[key] = chunk_hashes(token_ids)
        stack = ExitStack()
        stack.callback(self._on_its_way.pop, key)
        return stack

    def now(self, token_ids: Sequence[int], engine: str) -> None:
        self._sent.record(chunk_hashes(token_ids), engine)

    def keep_only(self, engines: set[str]) -> None:
        """Those that are gone hold nothing."""
        self._sent.keep_only(engines)

    def _known(self, hashes: Sequence[int]) -> int:
        return CHUNK * max(self._sent.matches(hashes).values(), default=0)
