"""A real kube-apiserver and etcd on loopback, with nothing else: no controllers, no nodes."""

import base64
import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

TOKEN = "only-for-these-tests"


@dataclass(frozen=True)
class Cluster:
    """One API server."""

    name: str
    url: str
    kubeconfig: pathlib.Path
    log: pathlib.Path
    process: subprocess.Popen[bytes]


def binary(name: str) -> str:
    """Where the program is; KeyError says what is missing and what to do."""
    cache = pathlib.Path(os.environ.get("PDD_CACHE", "/var/cache/pdd"))
    built = [path for path in cache.glob(f"bin/*/{name}") if path.parent.suffix != ".partial"]
    newest = max(built, key=lambda path: path.stat().st_mtime, default=None)
    found = str(newest) if newest else shutil.which(name)
    if found is None:
        raise KeyError(f"{name} is neither in {cache}/bin/*/ nor on PATH; `make binaries` builds it")
    return found


@contextlib.contextmanager
def control_planes(names: list[str], directory: pathlib.Path) -> Iterator[dict[str, Cluster]]:
    """One API server a name, all on one etcd; everything started here ends here."""
    etcd, kube_apiserver = binary("etcd"), binary("kube-apiserver")
    with contextlib.ExitStack() as stack:
        etcd_port, peer_port = free_port(), free_port()
        _keys(directory)
        peer = f"http://127.0.0.1:{peer_port}"
        client = f"http://127.0.0.1:{etcd_port}"
        _spawn(
            stack,
            directory / "etcd.log",
            [
                etcd,
                f"--data-dir={directory / 'etcd'}",
                "--unsafe-no-fsync",
                "--log-level=warn",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            ],
        )
        clusters = {name: _api_server(stack, name, directory, kube_apiserver, client) for name in names}
        for cluster in clusters.values():
            _wait_ready(cluster)
        yield clusters


def _api_server(stack: contextlib.ExitStack, name: str, directory: pathlib.Path, command: str, etcd: str) -> Cluster:
    port = free_port()
    home = directory / name
    home.mkdir()
    (home / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    log = home / "kube-apiserver.log"
    process = _spawn(
        stack,
        log,
        [
            command,
            f"--etcd-servers={etcd}",
            f"--etcd-prefix=/registry/{name}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={home}",
            f"--token-auth-file={home / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={directory / 'sa.pub'}",
            f"--service-account-signing-key-file={directory / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--profiling=false",
        ],
    )
    url = f"https://127.0.0.1:{port}"
    return Cluster(name, url, home / "kubeconfig", log, process)


def _wait_ready(cluster: Cluster) -> None:
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(  # noqa: S310 - https to our own API server
        f"{cluster.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if cluster.process.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(request, context=insecure, timeout=5).read()  # noqa: S310 https
            certificate = (cluster.kubeconfig.parent / "apiserver.crt").read_bytes()
            cluster.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(cluster.url, certificate)))
            return
        time.sleep(0.2)
    tail = cluster.log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"kube-apiserver of {cluster.name} did not become ready:\n{tail}")


def _kubeconfig(url: str, certificate: bytes) -> dict[str, Any]:
    authority = base64.b64encode(certificate).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def _keys(directory: pathlib.Path) -> None:
    key, public = directory / "sa.key", directory / "sa.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", str(key)], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", str(key), "-pubout", "-out", str(public)], check=True, capture_output=True)


def _spawn(stack: contextlib.ExitStack, log: pathlib.Path, command: list[str]) -> subprocess.Popen[bytes]:
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
