"""Tries whether a connection to the other site's router can be made: TCP, and TLS where there are keys."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from socket import gaierror
from time import monotonic

from pdd_link import metrics
from pdd_link.config import Router
from pdd_link.keys import Keys
from pdd_link.measure.pace import Pace
from pdd_link.probe.pause import pause
from pdd_link.watch import Watched

_PATIENCE_SECONDS = 5.0
_JUDGING_SECONDS = 0.5


class Result(StrEnum):
    """What became of a connection. A program compares these; the message is for a human."""

    ESTABLISHED = "Established"
    REFUSED = "Refused"
    TIMEOUT = "Timeout"
    UNREACHABLE = "Unreachable"
    UNKNOWN_NAME = "UnknownName"
    NO_TLS = "NoTLS"
    """Something answers that does not speak TLS, or none that we do."""
    EXPIRED = "CertificateExpired"
    UNKNOWN_AUTHORITY = "CertificateUnknownAuthority"
    WRONG_NAME = "CertificateWrongName"
    INVALID = "CertificateInvalid"
    REFUSED_OURS = "OwnCertificateRefused"


@dataclass(frozen=True)
class Handshake:
    result: Result
    message: str
    seconds: float
    tls: bool


def certificate_name(site: str) -> str:
    """The DNS name that the certificate of a site's router has to have."""
    return f"router.{site}"


class RouterProbe:
    """`pace` is asked before every handshake."""

    def __init__(self, site: str, router: Router, *, keys: Watched[Keys], pace: Callable[[], Pace]):
        self._site = site
        self.router = router
        self._keys = keys
        self._pace = pace
        self.last: Handshake | None = None
        self.last_at: float | None = None

    @property
    def labels(self) -> dict[str, str]:
        return {"site": self._site, "router": f"{self.router.host}:{self.router.port}"}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._try()
                await pause(self._pace().handshake_every)
        finally:
            metrics.forget(self.labels)

    async def _try(self) -> None:
        tls = self._keys.current.tls
        made = await shake_hands(self.router.host, self.router.port, tls, name=certificate_name(self._site))
        self.last, self.last_at = made, monotonic()
        metrics.HANDSHAKES.labels(**self.labels, result=made.result).inc()
        if made.result is Result.ESTABLISHED:
            metrics.HANDSHAKE.labels(**self.labels).observe(made.seconds)


async def shake_hands(host: str, port: int, tls: ssl.SSLContext | None, *, name: str) -> Handshake:
    """Connects and leaves. `name` is what the certificate has to be for."""
    began = monotonic()
    took: float | None = None
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name if tls else None)
            took = monotonic() - began
            try:
                if tls:
                    await _refused_late(reader, took)
            finally:
                await _leave(writer)
    except (OSError, TimeoutError) as error:
        return Handshake(*_told(error), took or monotonic() - began, tls is not None)
    return Handshake(Result.ESTABLISHED, "", took, tls is not None)


async def _refused_late(reader: StreamReader, took: float) -> None:
    """In TLS 1.3 a server judges our certificate when our handshake is over already: raises what it says, which is
    there a round trip later if at all. The handshake took two."""
    try:
        async with asyncio.timeout(took + _JUDGING_SECONDS):
            if not await reader.read(1):
                raise ConnectionAbortedError("closed right after the handshake, as by who refuses a certificate")
    except TimeoutError:
        return


async def _leave(writer: StreamWriter) -> None:
    # At once: a peer that is gone would not answer a goodbye.
    writer.transport.abort()
    await asyncio.sleep(0)


def _told(error: OSError) -> tuple[Result, str]:
    message = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFICATION.get(error.verify_code, Result.INVALID), error.verify_message
    if isinstance(error, ssl.SSLError):
        # An alert is the other side's word; before it is one about our certificate it has seen that.
        reason = error.reason or message
        about_ours = "ALERT" in reason and any(word in reason for word in _ABOUT_OURS)
        return Result.REFUSED_OURS if about_ours else Result.NO_TLS, reason
    for kind, result in _SYSTEM:
        if isinstance(error, kind):
            return result, message
    return Result.UNREACHABLE, message


# X509_V_ERR_* of OpenSSL.
_VERIFICATION = {
    10: Result.EXPIRED,
    18: Result.UNKNOWN_AUTHORITY,  # self-signed
    19: Result.UNKNOWN_AUTHORITY,  # self-signed in the chain
    20: Result.UNKNOWN_AUTHORITY,  # no issuer
    21: Result.UNKNOWN_AUTHORITY,  # no signature to verify
    62: Result.WRONG_NAME,
    64: Result.WRONG_NAME,  # an address
}
_ABOUT_OURS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
_SYSTEM: list[tuple[type[OSError], Result]] = [
    (ConnectionRefusedError, Result.REFUSED),
    (TimeoutError, Result.TIMEOUT),
    (gaierror, Result.UNKNOWN_NAME),
    # By who has seen our certificate.
    (ConnectionAbortedError, Result.REFUSED_OURS),
    # In the middle of a handshake of TLS.
    (ConnectionResetError, Result.NO_TLS),
    (BrokenPipeError, Result.NO_TLS),
]
