"""The configuration as it is now: the file is looked at again every few seconds.

A ConfigMap volume is updated by swapping a symlink, which no inotify watch on the file itself survives.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from pdd_router.config import ConfigError, FrontConfig, MainConfig, load

_LOG = structlog.get_logger(__name__)
_EVERY_SECONDS = 2.0

C = TypeVar("C", FrontConfig, MainConfig)


class ConfigWatch(Generic[C]):
    def __init__(self, path: Path, current: C):
        self._path = path
        self._listeners: list[Callable[[C], None]] = []
        self.current: C = current

    def on_change(self, listener: Callable[[C], None]) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Until cancelled. A file that cannot be used is reported once and the last good one kept."""
        reported = ""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                new = load(self._path)
            except ConfigError as error:
                if str(error) != reported:
                    reported = str(error)
                    _LOG.error("configuration refused, keeping the last good one", error=reported)
                continue
            if new == self.current:
                continue
            if not isinstance(new, type(self.current)):
                _LOG.error("configuration changes the mode, which needs a restart", mode=new.mode)
                continue
            self.current = new
            _LOG.info("configuration changed")
            for listener in self._listeners:
                listener(new)
