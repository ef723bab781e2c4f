"""Mounted files as they are now: they are looked at again every few seconds.

A ConfigMap or Secret volume is updated by swapping a symlink, which no inotify watch on the files survives.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from pdd_link.config import ConfigError

_LOG = structlog.get_logger(__name__)
_EVERY_SECONDS = 2.0

T = TypeVar("T")


class Watched(Generic[T]):
    """Raises ConfigError at the start when the files cannot be used; later ones keep the last good ones."""

    def __init__(self, path: Path, load: Callable[[Path], T]):
        self._path = path
        self._load = load
        self._reported = ""
        self.current = load(path)

    async def follow(self, changed: Callable[[T], None]) -> None:
        """Until cancelled. What cannot be used is reported once."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                new = self._load(self._path)
            except ConfigError as error:
                if str(error) != self._reported:
                    self._reported = str(error)
                    _LOG.error("refused, keeping the last good one", error=self._reported)
                continue
            self._reported = ""
            if new != self.current:
                self.current = new
                _LOG.info("changed", path=str(self._path))
                changed(new)
