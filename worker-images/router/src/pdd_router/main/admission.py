"""Lets requests in as far as the engines' KV caches have room; policy/admission.py decides, here they wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from pdd_router.engines.client import Engine
from pdd_router.errors import OverloadedError
from pdd_router.policy.admission import Claim, Room, blocks_of

# Who waits holds a lease at P, which must still be usable when the wait ends.
_PATIENCE_SECONDS = 10.0
_MOST_WAITING = 64


class Admission:
    def __init__(self) -> None:
        self._rooms: WeakKeyDictionary[Engine, Room] = WeakKeyDictionary()
        self._wakers: dict[Claim, asyncio.Event] = {}

    @asynccontextmanager
    async def admitted(self, engine: Engine, tokens: int, *, has_kv: bool = False) -> AsyncIterator[None]:
        """Holds room for `tokens` while the context is open. An answer whose KV is there already (`has_kv`) does not
        wait: turning it away would free nothing. Raises OverloadedError when there is no room for too long."""
        room = self._room(engine)
        claim = room.take(blocks_of(tokens, engine.facts.block_size)) if has_kv else None
        claim = claim or room.claim(blocks_of(tokens, engine.facts.block_size))
        if claim is None:
            raise OverloadedError(f"{engine.name} has no room and {_MOST_WAITING} requests wait for it", retry_after=5)
        try:
            if not claim.granted:
                await self._wait(claim, engine)
            yield
        finally:
            for granted in room.give_back(claim):
                self._wakers[granted].set()

    async def _wait(self, claim: Claim, engine: Engine) -> None:
        waker = self._wakers[claim] = asyncio.Event()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await waker.wait()
        except TimeoutError:
            what = f"{engine.name} had no room for the KV cache in {_PATIENCE_SECONDS:.0f} s"
            raise OverloadedError(what, retry_after=5) from None
        finally:
            del self._wakers[claim]

    def _room(self, engine: Engine) -> Room:
        if engine not in self._rooms:
            blocks = engine.facts.kv_cache_tokens // engine.facts.block_size
            self._rooms[engine] = Room(capacity_blocks=blocks, most_waiting=_MOST_WAITING)
        return self._rooms[engine]
