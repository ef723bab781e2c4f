"""The link's keys: the files of a mounted Secret, read again when kubelet renews them.

`probe.key` signs this agent's requests. `probe.key.previous`, where it is there, is accepted as well: an agent whose
Secret is renewed later is heard meanwhile, and a new key can be made known there before it is used. `tls.crt`,
`tls.key` and `ca.crt` (one CA or more) are for the handshake with a router; without them it is of TCP alone.
"""

import ssl
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from pdd_link.config import ConfigError
from pdd_link.packet import KEY_BYTES

_TLS = ("tls.crt", "tls.key", "ca.crt")


@dataclass(frozen=True)
class Keys:
    probe: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, compare=False)
    tls_digest: bytes = b""
    """Of the files that `tls` was made of: contexts cannot be compared."""

    @property
    def accepted(self) -> list[bytes]:
        return [self.probe] if self.previous is None else [self.probe, self.previous]


def load(directory: Path) -> Keys:
    """Raises ConfigError, which never tells anything of a key."""
    previous = directory / "probe.key.previous"
    there = [(directory / name).exists() for name in _TLS]
    if any(there) and not all(there):
        raise ConfigError(f"{directory}: {', '.join(_TLS)} go together, and only some are there")
    try:
        return Keys(
            probe=_probe_key(directory / "probe.key"),
            previous=_probe_key(previous) if previous.exists() else None,
            tls=_context(directory) if all(there) else None,
            tls_digest=sha256(b"".join((directory / name).read_bytes() for name in _TLS)).digest()
            if all(there)
            else b"",
        )
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: cannot be read: {error.strerror}") from None


def _probe_key(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path}: has {len(key)} bytes, expected {KEY_BYTES} random ones")
    return key


def _context(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(directory / "ca.crt")
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    except ssl.SSLError as error:
        raise ConfigError(f"{directory}: {', '.join(_TLS)} cannot be used: {error.reason}") from None
    return context
