"""Handshakes with a router's port: what is wrong with it is told in a word."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pdd_link import keys
from pdd_link.probe import router
from pdd_link.probe.router import Result, shake_hands

from .line import peer, until


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def authority(directory: Path, name: str) -> None:
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "1", "-subj", f"/CN={name}")  # fmt: skip


def certificate(directory: Path, name: str, *, by: str, dns: str, days: str = "1") -> None:
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName=DNS:{dns}")  # fmt: skip
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.crt", "-CAkey", f"{by}.key",
            "-days", days, "-copy_extensions", "copy", "-out", f"{name}.crt")  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority(directory, "ca")
    authority(directory, "next-ca")
    certificate(directory, "agent", by="ca", dns="agent.site-a")
    certificate(directory, "good", by="ca", dns="router.site-b")
    certificate(directory, "renewed", by="next-ca", dns="router.site-b")
    certificate(directory, "misnamed", by="ca", dns="router.site-c")
    certificate(directory, "expired", by="ca", dns="router.site-b", days="-1")
    certificate(directory, "foreign-agent", by="next-ca", dns="agent.site-a")
    return directory


def agent_keys(certificates: Path, tmp_path: Path, *, own: str = "agent", trusted: tuple[str, ...] = ("ca",)) -> Any:
    (tmp_path / "probe.key").write_bytes(b"k" * 32)
    (tmp_path / "tls.crt").write_bytes((certificates / f"{own}.crt").read_bytes())
    (tmp_path / "tls.key").write_bytes((certificates / f"{own}.key").read_bytes())
    (tmp_path / "ca.crt").write_text("".join((certificates / f"{name}.crt").read_text() for name in trusted))
    return keys.load(tmp_path).tls


@asynccontextmanager
async def served(tls: ssl.SSLContext | None, says: bytes = b"") -> AsyncIterator[int]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        try:
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    # Whatever a connection ends with is this server's affair.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def router_context(certificates: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
    context.load_verify_locations(certificates / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize(
    ("server", "own", "trusted", "result"),
    [
        ("good", "agent", ("ca",), Result.ESTABLISHED),
        ("renewed", "agent", ("ca", "next-ca"), Result.ESTABLISHED),
        ("renewed", "agent", ("ca",), Result.UNKNOWN_AUTHORITY),
        ("expired", "agent", ("ca",), Result.EXPIRED),
        ("misnamed", "agent", ("ca",), Result.WRONG_NAME),
        ("good", "foreign-agent", ("ca",), Result.REFUSED_OURS),
    ],
)
async def test_certificates(
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    own: str,
    trusted: tuple[str, ...],
    result: Result,
) -> None:
    if result is Result.ESTABLISHED:  # nothing to wait for
        monkeypatch.setattr(router, "_JUDGING_SECONDS", 0.0)
    tls = agent_keys(certificates, tmp_path, own=own, trusted=trusted)
    async with served(router_context(certificates, server)) as port:
        made = await shake_hands("127.0.0.1", port, tls, name="router.site-b")
    assert (made.result, made.tls) == (result, True)
    assert bool(made.message) is (result is not Result.ESTABLISHED)
    assert made.seconds > 0


async def test_a_port_that_speaks_no_tls(certificates: Path, tmp_path: Path) -> None:
    tls = agent_keys(certificates, tmp_path)
    async with served(None, says=b"220 mail.example.com ESMTP\r\n") as port:
        assert (await shake_hands("127.0.0.1", port, tls, name="router.site-b")).result is Result.NO_TLS


async def test_a_port_that_says_nothing(certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_PATIENCE_SECONDS", 0.2)
    tls = agent_keys(certificates, tmp_path)
    async with served(None) as port:
        assert (await shake_hands("127.0.0.1", port, tls, name="router.site-b")).result is Result.TIMEOUT


async def test_without_keys_it_is_tcp_alone() -> None:
    async with served(None) as port:
        made = await shake_hands("127.0.0.1", port, None, name="router.site-b")
    assert (made.result, made.tls) == (Result.ESTABLISHED, False)


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        made = await shake_hands("127.0.0.1", taken.getsockname()[1], None, name="router.site-b")
    assert made.result is Result.REFUSED


async def test_a_name_that_nobody_knows() -> None:
    assert (await shake_hands("no-such-host.invalid", 1, None, name="x")).result is Result.UNKNOWN_NAME


async def test_the_document_has_it_for_each_peer_of_the_site(start: Any) -> None:
    a, b = await start("site-a"), await start("site-b")
    async with served(None) as port:
        where = {"host": "127.0.0.1", "port": port}
        a.configure(peer("site-b", b.port, router=where), peer("site-b", b.port + 1, router=where))
        await until(lambda: [p["router"] and p["router"]["result"] for p in a.document["peers"]] == ["Established"] * 2)
        assert len(a.agent._routers) == 1
    await until(lambda: a.document["peers"][0]["router"]["result"] == "Refused")
