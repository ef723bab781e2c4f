"""The operator as a process of its own, with the rights that the charts grant and no others."""

import asyncio
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import yaml

from pdd_operator.clusters.kinds import NAMESPACE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Kind
from pdd_operator.clusters.session import Session

from .control_plane import binary, free_port
from .world import SYSTEM

CHARTS = pathlib.Path(__file__).parents[3] / "charts"
_RBAC = "rbac.authorization.k8s.io/v1"
_GRANTS = [
    NAMESPACE,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    Kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
]


async def grant(session: Session, chart: str, values: dict[str, Any]) -> None:
    """Apply what the chart grants, without what it runs."""
    command = [binary("helm"), "template", chart, str(CHARTS / chart), "--namespace", SYSTEM, "--values", "-"]
    rendered = await asyncio.to_thread(
        subprocess.run, command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True
    )
    kinds = {kind.kind: kind for kind in _GRANTS}
    for document in yaml.safe_load_all(rendered.stdout):
        if document and document["kind"] in kinds:
            await session.apply(kinds[document["kind"]], document, force=True)


async def token(session: Session) -> str:
    """A token of the operator's account."""
    request = Kind("v1", "TokenRequest", f"{SERVICE_ACCOUNT.plural}/pdd-operator/token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"namespace": SYSTEM}}
    answer = await session.create(request, {**body, "spec": {"expirationSeconds": 3600}})
    return str(answer["status"]["token"])


def kubeconfig_with(kubeconfig: str, credential: str) -> str:
    """The kubeconfig with another token."""
    document = yaml.safe_load(kubeconfig)
    document["users"][0]["user"] = {"token": credential}
    return yaml.safe_dump(document)


@dataclass
class OperatorProcess:
    """Started, killed and started again."""

    kubeconfig: pathlib.Path
    log: pathlib.Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """A new process."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PDD_HEALTH_PORT": str(free_port()),
            "PDD_ENGINE_IMAGE": "engine:1",
            "PDD_ROUTER_IMAGE": "router:1",
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pdd_operator.main"], env=environment, stdout=output, stderr=output
            )

    async def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
            self.process = None

    def resident_megabytes(self) -> float:
        """What the process takes of memory."""
        assert self.process is not None
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the process has no VmRSS")
