"""`pdd-engine`: from the environment of an engine pod to a running vLLM.

`launch` is the whole decision, a pure function of the environment and the user's own arguments. `main` adds what only
the pod knows (its plugins, its network interface), sets the defaults in the environment and becomes vLLM.
"""

import argparse
import fcntl
import importlib.metadata
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

ENDPOINT_PLUGINS = ("pdd_facts", "pdd_alive", "pdd_release", "pdd_forget", "pdd_renderer")
PLUGIN_GROUPS_LOADED_BY_DEFAULT = (
    "vllm.general_plugins",
    "vllm.platform_plugins",
    "vllm.io_processor_plugins",
    "vllm.stat_logger_plugins",
)
MAX_LOGPROBS = 20
"""vLLM's own limit for a client."""
SHUTDOWN_SECONDS = 60
"""How long an engine may finish its work after SIGTERM. For a prefill engine work includes unread leases: vLLM's
lease of 30 s and the pull that follows. The pod's grace period must be longer."""


class Role(StrEnum):
    PREFILL = "prefill"
    RELAY_DECODE = "relay-decode"
    MAIN_DECODE = "main-decode"
    RENDERER = "renderer"


class SettingError(ValueError):
    """A variable that is missing or makes no sense: names it, what it holds and what was expected."""


@dataclass(frozen=True)
class Launch:
    """What to run."""

    arguments: list[str]
    """Of the `vllm` command."""
    environment: dict[str, str]
    """Defaults: a variable that is already set stays."""


def launch(
    environment: Mapping[str, str],
    user_arguments: Sequence[str],
    *,
    installed_plugins: Sequence[str] = (),
    network_device: str | None = None,
) -> Launch:
    """Decide what to run. The user's arguments come last: where vLLM sees an option twice, the last one wins."""
    settings = _Settings(environment)
    role = settings.role()
    on_cpu = settings.choice("PDD_PLATFORM", ("cpu", ""), default="") == "cpu"

    if role is Role.RENDERER:
        command = ["launch", "render"]
        # The front router's grace for an answer; usage with P's prefix-cache hit, as the engines tell it.
        role_arguments = ["--enable-prompt-tokens-details", "--shutdown-timeout", str(SHUTDOWN_SECONDS)]
    else:
        command = ["serve"]
        role_arguments = _engine_arguments(settings, role, on_cpu)
    arguments = [*command, *_common_arguments(settings, on_cpu), *role_arguments, *user_arguments]
    if role is not Role.RENDERER:
        arguments += _logprobs_arguments(user_arguments)

    defaults = {
        "VLLM_PLUGINS": ",".join(_plugins(environment, installed_plugins)),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if settings.model_is_a_path():
        defaults["HF_HUB_OFFLINE"] = "1"
    if on_cpu:
        defaults |= {
            # One thread: more of them spin against each other as soon as two engines share a machine.
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # The image has no compiler, and vLLM compiles some helpers in spite of --enforce-eager: the first request
            # with logprobs would end the engine.
            "TORCH_COMPILE_DISABLE": "1",
        }
        if _in_one_process(settings, on_cpu):
            # The engine core is still a process of its own; this lets its worker be in it (see _engine_arguments).
            defaults["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if role is not Role.RENDERER:
        defaults |= _transfer_environment(settings, on_cpu, network_device)
    return Launch(arguments, defaults)


def _common_arguments(settings: "_Settings", on_cpu: bool) -> list[str]:
    arguments = [settings.required("PDD_MODEL", "a path or a Hugging Face repository id")]
    arguments += ["--served-model-name", settings.required("PDD_SERVED_MODEL_NAME", "the name that clients ask for")]
    arguments += ["--host", "0.0.0.0"]  # noqa: S104 - a pod serves on its own address
    arguments += ["--port", str(settings.number("PDD_PORT", default=8000, most=65535))]
    if revision := settings.get("PDD_MODEL_REVISION"):
        arguments += ["--revision", revision]
    if settings.get("PDD_MAX_MODEL_LEN"):
        arguments += ["--max-model-len", str(settings.number("PDD_MAX_MODEL_LEN"))]
    # float32 is the one type in which a CPU gives the same tokens before and after a handoff.
    if dtype := settings.get("PDD_DTYPE") or ("float32" if on_cpu else ""):
        arguments += ["--dtype", dtype]
    # Probes and scrapes every few seconds are not worth a line each.
    return [*arguments, "--disable-access-log-for-endpoints", "/health,/metrics,/pdd/v1/alive,/pdd/v1/facts"]


def _engine_arguments(settings: "_Settings", role: Role, on_cpu: bool) -> list[str]:
    arguments = [
        # /inference/v1/generate: token ids in, token ids out. Off unless asked for.
        "--enable-scale-out",
        "--enable-prompt-tokens-details",
        # The same hashes on every engine and outside vLLM: the default one hashes a Python pickle.
        "--prefix-caching-hash-algo", "sha256_cbor",
        "--shutdown-timeout", str(SHUTDOWN_SECONDS),
        "--tensor-parallel-size", str(settings.number("PDD_TENSOR_PARALLEL", default=1)),
        "--kv-transfer-config", json.dumps(_transfer_config(role, on_cpu)),
    ]  # fmt: skip
    if block_size := settings.get("PDD_BLOCK_SIZE") or ("32" if on_cpu else ""):
        arguments += ["--block-size", block_size]
        settings.number("PDD_BLOCK_SIZE", default=32)
    if on_cpu:
        # With an explicit cache size and no compilation vLLM skips its warm-up run.
        arguments += ["--enforce-eager", "--kv-cache-memory-bytes", "1G", "--max-num-seqs", "16"]
    if _in_one_process(settings, on_cpu):
        arguments += ["--distributed-executor-backend", "uni"]
    return arguments


def _logprobs_arguments(user_arguments: Sequence[str]) -> list[str]:
    """One more than clients may ask for: the renderer asks for one more (renderer/wire.py)."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--max-logprobs", "--max_logprobs", type=int, default=MAX_LOGPROBS)
    try:
        most = parser.parse_known_args(user_arguments)[0].max_logprobs
    except argparse.ArgumentError:
        return []  # vLLM says what is wrong
    return ["--max-logprobs", str(most + 1)] if most >= 0 else []


def _in_one_process(settings: "_Settings", on_cpu: bool) -> bool:
    """A single CPU worker lives in the engine core: a third less memory and start-up work, and no core that spins
    on the queue between the two. vLLM wants a process for it only to choose its threads, which is done here."""
    return on_cpu and settings.number("PDD_TENSOR_PARALLEL", default=1) == 1


def _transfer_config(role: Role, on_cpu: bool) -> dict[str, object]:
    config: dict[str, object] = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    if on_cpu:
        config["kv_buffer_device"] = "cpu"
    if role is not Role.PREFILL:
        # A failed pull costs a prefill at this engine, not the request.
        config["kv_load_failure_policy"] = "recompute"
    # NIXL's own threads (vLLM: 4) spin while they wait, and bring no throughput over TCP.
    config["kv_connector_extra_config"] = {"num_threads": 0}
    return config


def _transfer_environment(settings: "_Settings", on_cpu: bool, network_device: str | None) -> dict[str, str]:
    pod_ip = settings.required("POD_IP", "the pod's address, which the other engines reach")
    port = settings.number("PDD_SIDE_CHANNEL_PORT", default=5600, most=65535)
    defaults = {
        "VLLM_HOST_IP": pod_ip,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": pod_ip,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port),
        "UCX_RCACHE_MAX_UNRELEASED": "1024",
        # A dead line is reported after some 4 s instead of TCP's 15 minutes.
        "UCX_TCP_KEEPIDLE": "1s",
        "UCX_TCP_KEEPINTVL": "1s",
        "UCX_TCP_KEEPCNT": "3",
        # A fifth less CPU at the same rate.
        "UCX_TCP_TX_SEG_SIZE": "1M",
        "UCX_TCP_RX_SEG_SIZE": "1M",
        # Read by plugins/idle.py.
        "PDD_NIXL_PROGRESS_DELAY_MICROS": "100",
        "PDD_IDLE_STEP_MILLIS": "10",
    }
    if on_cpu:
        defaults["UCX_TLS"] = "tcp,self"
        if network_device:
            defaults["UCX_NET_DEVICES"] = network_device
    return defaults


def _plugins(environment: Mapping[str, str], installed: Sequence[str]) -> list[str]:
    """Endpoint plugins load only when named, and naming one turns off all that are not: so name every one."""
    named = [name for name in environment.get("VLLM_PLUGINS", "").split(",") if name]
    own = [name for name in installed if name.startswith("pdd_")]
    others = named or [name for name in installed if name not in own]
    return list(dict.fromkeys([*own, *ENDPOINT_PLUGINS, *others]))


class _Settings:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def get(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def required(self, name: str, meaning: str) -> str:
        value = self.get(name)
        if not value:
            raise SettingError(f"{name} is not set: expected {meaning}")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.get(name) or default
        if value not in choices:
            expected = ", ".join(choice or "nothing" for choice in choices)
            raise SettingError(f"{name} is {value!r}: expected one of {expected}")
        return value

    def number(self, name: str, default: int | None = None, most: int | None = None) -> int:
        value = self.get(name) or ("" if default is None else str(default))
        limit = f" up to {most}" if most else ""
        if not value.isascii() or not value.isdecimal() or int(value) < 1 or (most and int(value) > most):
            raise SettingError(f"{name} is {value!r}: expected a whole number from 1{limit}")
        return int(value)

    def role(self) -> Role:
        roles = [role.value for role in Role]
        self.required("PDD_ROLE", f"one of {', '.join(roles)}")
        return Role(self.choice("PDD_ROLE", roles, default=""))

    def model_is_a_path(self) -> bool:
        return self.get("PDD_MODEL").startswith("/")


def _installed_plugins() -> list[str]:
    return [
        entry_point.name
        for group in PLUGIN_GROUPS_LOADED_BY_DEFAULT
        for entry_point in importlib.metadata.entry_points(group=group)
    ]


def _device_of(address: str) -> str | None:
    """The network interface that has an IPv4 address; None where that is not to be found out."""
    get_interface_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, get_interface_address, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def main() -> None:
    try:
        plan = launch(
            os.environ,
            sys.argv[1:],
            installed_plugins=_installed_plugins(),
            network_device=_device_of(os.environ.get("POD_IP", "")),
        )
    except SettingError as error:
        sys.exit(f"pdd-engine: {error}")
    for name, value in plan.environment.items():
        if name == "VLLM_PLUGINS":
            os.environ[name] = value  # contains what was there
        else:
            os.environ.setdefault(name, value)
    print("pdd-engine: vllm", *plan.arguments, flush=True)

    # Not before: torch and UCX read the environment when they are imported.
    from vllm.entrypoints.cli.main import main as vllm  # noqa: PLC0415

    sys.argv = ["vllm", *plan.arguments]
    vllm()


if __name__ == "__main__":
    main()
