"""The engines of a deployment as the suite sees them: what they hold, and how they are made to fail."""

import signal
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from pdd_e2e import running
from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.environment import Sites
from pdd_e2e.kube import Cluster, condition, wait_for

_HELD = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")

# Sends a signal to every process of the container whose name begins so. The first process of a container cannot be
# reached from inside it; the engine core, which does the work, is another one.
_SIGNAL = """
import os, sys
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        name = open(f"/proc/{pid}/comm").read()
    except OSError:
        continue
    if name.startswith(sys.argv[1]):
        os.kill(int(pid), int(sys.argv[2]))
        print(pid)
"""


@dataclass(frozen=True)
class Role:
    cluster: Cluster
    deployment: str
    component: str

    def pod(self) -> str:
        """The one that is ready. Raises WaitedTooLongError."""

        def look() -> str | None:
            for pod in running.pods(self.cluster, self.deployment, self.component):
                if condition(pod, "Ready")["status"] == "True" and "deletionTimestamp" not in pod["metadata"]:
                    return str(pod["metadata"]["name"])
            return None

        return wait_for(f"a ready {self.component} pod", look, seconds=300)

    def lives(self) -> set[tuple[str, int]]:
        """Its pods' containers that run: a restart is another life."""
        return {
            (str(pod["metadata"]["name"]), int(status["restartCount"]))
            for pod in running.pods(self.cluster, self.deployment, self.component)
            if "deletionTimestamp" not in pod["metadata"]
            for status in pod["status"].get("containerStatuses", ())
        }

    def metrics(self) -> dict[str, float]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod()}:8000/proxy/metrics"
        text = self.cluster.kubectl("get", "--raw", path)
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("vllm:") and not sample.name.endswith("_bucket")
        }

    def held(self) -> dict[str, float]:
        """Requests and the share of the KV cache that somebody holds; empty at rest."""
        now = self.metrics()
        return {name: now[name] for name in _HELD if now[name] > 0}

    def signal_core(self, number: signal.Signals, pod: str = "") -> None:
        """To the engine core: SIGSTOP and SIGCONT make it hang and go on, SIGKILL kills it."""
        command = ("python3", "-c", _SIGNAL, "VLLM::EngineCor", str(int(number)))
        said = self.cluster.kubectl("-n", NAMESPACE, "exec", pod or self.pod(), "--", *command)
        if not said.strip():
            raise LookupError(f"no engine core in {self.pod()}")

    def kill(self) -> None:
        """The whole pod, without a word of warning; its Deployment makes another one."""
        pod = self.pod()
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


@dataclass(frozen=True)
class Engines:
    prefill: Role
    relay: Role
    main: Role

    @property
    def roles(self) -> dict[str, Role]:
        return {"prefill": self.prefill, "relay": self.relay, "main": self.main}

    def held(self) -> dict[str, dict[str, float]]:
        return {name: held for name, role in self.roles.items() if (held := role.held())}

    def lives(self) -> dict[str, set[tuple[str, int]]]:
        return {name: role.lives() for name, role in self.roles.items()}

    def wait_free(self, seconds: float) -> None:
        """Until no engine holds anything. Raises WaitedTooLongError, which says what is held where."""
        wait_for(
            "engines that hold nothing", lambda: not self.held(), seconds=seconds, otherwise=lambda: str(self.held())
        )


def engines(sites: Sites, deployment: str) -> Engines:
    return Engines(
        Role(sites.a, deployment, "prefill"),
        Role(sites.a, deployment, "relay-decode"),
        Role(sites.b, deployment, "main-decode"),
    )
