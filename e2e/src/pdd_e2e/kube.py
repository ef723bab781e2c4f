"""A cluster as the suite sees it: a kubeconfig and kubectl, nothing that only one kind of cluster has."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml


class KubectlError(Exception):
    """kubectl failed; the message is what it said."""


class WaitedTooLongError(Exception):
    """Names what was waited for, for how long, and what was there instead."""


@dataclass(frozen=True)
class Cluster:
    """`name` is that of its MemberCluster."""

    name: str
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"{self.name}: kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        scope = ("-n", namespace) if namespace else ()
        answer: dict[str, Any] = json.loads(self.kubectl("get", kind, name, *scope, "-o", "json"))
        return answer

    def list(self, kinds: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kinds, *arguments, "-o", "json"))["items"]
        return items

    def delete(self, kind: str, name: str, namespace: str = "", *arguments: str, timeout: float = 180) -> None:
        scope = ("-n", namespace) if namespace else ()
        self.kubectl("delete", kind, name, *scope, "--ignore-not-found", *arguments, timeout=timeout)

    @contextmanager
    def port_forward(self, namespace: str, target: str, port: int) -> Iterator[str]:
        """`http://127.0.0.1:N`, which leads to a port of `svc/NAME` or `pod/NAME` while the context lasts."""
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [
                    "kubectl",
                    "--kubeconfig",
                    str(self.kubeconfig),
                    "-n",
                    namespace,
                    "port-forward",
                    target,
                    f":{port}",
                ],
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            try:
                yield f"http://127.0.0.1:{_local_port(process, said)}"
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)


def _local_port(process: "subprocess.Popen[bytes]", said: Any) -> int:
    def port() -> int | None:
        said.seek(0)
        text = said.read()
        if process.poll() is not None:
            raise KubectlError(f"port-forward ended: {text.strip()}")
        return int(text.split("127.0.0.1:")[1].split()[0]) if "Forwarding from 127.0.0.1:" in text else None

    return wait_for("a forwarded port", port, seconds=30, every=0.1)


T = TypeVar("T")


def wait_for(
    what: str,
    look: Callable[[], T | None],
    *,
    seconds: float,
    every: float = 1.0,
    otherwise: Callable[[], str] = str,
) -> T:
    """The first thing that `look` finds. Raises WaitedTooLongError with what `otherwise` says."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end:
            raise WaitedTooLongError(f"waited {seconds:.0f} s for {what}. {otherwise()}")
        time.sleep(every)


def condition(resource: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A condition of a resource's status, with status Unknown where it is not there yet."""
    for entry in resource.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return dict(entry)
    return {"type": kind, "status": "Unknown", "reason": "Absent", "message": "not reported yet"}


def kill_container(pod: Mapping[str, Any]) -> None:
    """kill -9 of the first process of the pod's first container, found by its id among this machine's.

    Works wherever the node shares this kernel (localkube, kind). Raises LookupError elsewhere.
    """
    container = pod["status"]["containerStatuses"][0]["containerID"].split("://")[1]
    pids = [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and container in _cgroup(entry)
    ]
    if not pids:
        raise LookupError(f"no process of container {container} on this machine")
    os.kill(min(pids), signal.SIGKILL)


def _cgroup(process: Path) -> str:
    try:
        return (process / "cgroup").read_text()
    except OSError:
        return ""
