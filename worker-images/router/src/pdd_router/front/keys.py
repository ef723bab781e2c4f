"""API keys: the files of a mounted Secret, read again when kubelet renews them."""

import asyncio
import hashlib
import hmac
from pathlib import Path

import structlog

_LOG = structlog.get_logger(__name__)
_EVERY_SECONDS = 2.0


class ApiKeys:
    """Without a directory everybody may ask. With one that has no keys nobody may."""

    def __init__(self, directory: str | None):
        self._directory = directory
        self._digests: list[bytes] = []
        self._read()

    @property
    def needed(self) -> bool:
        return self._directory is not None

    def allows(self, authorization: str | None) -> bool:
        """`authorization` is the header's value. Takes the same time whichever key matches, or none."""
        if not self.needed:
            return True
        scheme, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(matches)

    def follow(self, directory: str | None) -> None:
        self._directory = directory
        self._read()

    async def keep_reading(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self._read()

    def _read(self) -> None:
        if self._directory is None:
            return
        found = []
        try:
            # Kubernetes mounts a Secret as links into a hidden directory, which it replaces as a whole.
            for path in sorted(Path(self._directory).iterdir()):
                if not path.name.startswith(".") and path.is_file() and (key := path.read_text().strip()):
                    found.append(_digest(key))
        except (OSError, UnicodeDecodeError) as error:
            # In the middle of a renewal: the keys of before hold until it can be read.
            _LOG.warning("API keys cannot be read, keeping the last known", error=type(error).__name__)
            return
        if found != self._digests:
            _LOG.info("API keys", count=len(found))
            self._digests = found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
