"""The calls that are under way to one peer, so that they can be ended all at once when it hangs.

A peer that is stopped keeps its connections: nothing but our own watch (engines/watch.py, line/sites.py) finds out.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from aiohttp import ClientResponse


class Calls:
    def __init__(self) -> None:
        self._waiting: set[asyncio.Timeout] = set()
        self._reading: set[ClientResponse] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._reading)

    async def begun(self, response: Awaitable[ClientResponse]) -> ClientResponse:
        """Raises TimeoutError when it was broken off before there was an answer."""
        async with asyncio.timeout(None) as scope:
            self._waiting.add(scope)
            try:
                return await response
            finally:
                self._waiting.discard(scope)

    @contextmanager
    def reading(self, response: ClientResponse) -> Iterator[None]:
        """Whoever reads the body when it is broken off gets aiohttp's ClientError."""
        self._reading.add(response)
        try:
            yield
        finally:
            self._reading.discard(response)

    def break_off(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in self._waiting:
            scope.reschedule(now)
        for response in self._reading:
            response.close()
