"""From the environment of a pod to vLLM's command line."""

import json
from collections.abc import Sequence

import pytest

from pdd_engine.entrypoint import Launch, SettingError, launch

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104
QUIET = "/health,/metrics,/pdd/v1/alive,/pdd/v1/facts"
ENDPOINTS = "pdd_facts,pdd_alive,pdd_release,pdd_forget,pdd_renderer"
POD = {
    "PDD_ROLE": "prefill",
    "PDD_MODEL": "/models/tiny",
    "PDD_SERVED_MODEL_NAME": "assistant",
    "PDD_MAX_MODEL_LEN": "4096",
    "PDD_DTYPE": "bfloat16",
    "PDD_BLOCK_SIZE": "64",
    "PDD_TENSOR_PARALLEL": "2",
    "POD_IP": "10.1.2.3",
}


def option(plan: Launch, name: str) -> str:
    """The value that vLLM takes: of an option given twice, the last."""
    last = max(index for index, argument in enumerate(plan.arguments) if argument == name)
    return plan.arguments[last + 1]


def transfer(plan: Launch) -> dict[str, object]:
    config = json.loads(option(plan, "--kv-transfer-config"))
    assert isinstance(config, dict)
    return config


def test_an_engine_gets_what_the_operator_decided() -> None:
    plan = launch(POD, [])
    assert plan.arguments == [
        "serve", "/models/tiny", "--served-model-name", "assistant", "--host", EVERY_ADDRESS, "--port", "8000",
        "--max-model-len", "4096", "--dtype", "bfloat16", "--disable-access-log-for-endpoints", QUIET,
        "--enable-scale-out", "--enable-prompt-tokens-details", "--prefix-caching-hash-algo", "sha256_cbor",
        "--shutdown-timeout", "60", "--tensor-parallel-size", "2", "--kv-transfer-config",
        '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"num_threads": 0}}',
        "--block-size", "64", "--max-logprobs", "21",
    ]  # fmt: skip
    assert plan.environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.1.2.3"
    assert plan.environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"
    assert "UCX_TLS" not in plan.environment


@pytest.mark.parametrize("role", ["relay-decode", "main-decode"])
def test_a_failed_pull_costs_a_decode_engine_a_prefill_and_not_the_request(role: str) -> None:
    assert transfer(launch(POD | {"PDD_ROLE": role}, []))["kv_load_failure_policy"] == "recompute"
    assert "kv_load_failure_policy" not in transfer(launch(POD, []))


def test_a_renderer_has_no_weights_and_no_transfer() -> None:
    renderer = {"PDD_ROLE": "renderer", "PDD_MODEL": "org/model", "PDD_MODEL_REVISION": "v2"}
    plan = launch(renderer | {"PDD_SERVED_MODEL_NAME": "assistant"}, [])
    assert plan.arguments[:3] == ["launch", "render", "org/model"]
    assert option(plan, "--revision") == "v2"
    assert "--kv-transfer-config" not in plan.arguments
    assert "--enable-prompt-tokens-details" in plan.arguments
    assert option(plan, "--shutdown-timeout") == "60"
    assert not {"POD_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST", "HF_HUB_OFFLINE"} & set(plan.environment)


@pytest.mark.parametrize(
    ("arguments", "engine", "renderer"),
    [
        ([], ["21"], []),
        (["--max-logprobs", "5"], ["5", "6"], ["5"]),
        (["--max_logprobs=5", "--max-logprobs", "7"], ["7", "8"], ["7"]),
        (["--max-logprobs", "-1"], ["-1"], ["-1"]),
        (["--max-logprobs", "few"], ["few"], ["few"]),
    ],
)
def test_an_engine_gives_one_logprob_more_than_a_client_may_ask_for(
    arguments: list[str], engine: list[str], renderer: list[str]
) -> None:
    def limits(role: str) -> list[str]:
        found = launch(POD | {"PDD_ROLE": role}, arguments).arguments
        return [found[index + 1] for index, argument in enumerate(found) if argument == "--max-logprobs"]

    assert limits("main-decode") == engine
    assert limits("renderer") == renderer


def test_the_users_arguments_win() -> None:
    plan = launch(POD, ["--dtype", "float16", "--seed", "7"])
    assert plan.arguments[-6:-2] == ["--dtype", "float16", "--seed", "7"]
    assert option(plan, "--dtype") == "float16"


def test_a_model_that_is_in_the_pod_is_looked_for_nowhere_else() -> None:
    assert launch(POD, []).environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in launch(POD | {"PDD_MODEL": "org/model"}, []).environment


class TestOnCpu:
    POD = POD | {"PDD_PLATFORM": "cpu", "PDD_TENSOR_PARALLEL": "1", "PDD_DTYPE": "", "PDD_BLOCK_SIZE": ""}

    def test_what_a_cpu_needs(self) -> None:
        plan = launch(self.POD, [], network_device="eth0")
        assert transfer(plan)["kv_buffer_device"] == "cpu"
        assert option(plan, "--dtype") == "float32"
        assert option(plan, "--block-size") == "32"
        assert "--enforce-eager" in plan.arguments
        assert plan.environment["UCX_TLS"] == "tcp,self"
        assert plan.environment["UCX_NET_DEVICES"] == "eth0"
        assert plan.environment["OMP_NUM_THREADS"] == "1"
        assert plan.environment["TORCH_COMPILE_DISABLE"] == "1"

    def test_one_worker_lives_in_the_engine_core_and_two_do_not(self) -> None:
        one = launch(self.POD, [])
        assert option(one, "--distributed-executor-backend") == "uni"
        assert one.environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        two = launch(self.POD | {"PDD_TENSOR_PARALLEL": "2"}, [])
        assert "--distributed-executor-backend" not in two.arguments
        assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in two.environment


@pytest.mark.parametrize(
    ("set_by_user", "installed", "expected"),
    [
        ("", [], ENDPOINTS),
        ("", ["pdd_idle"], f"pdd_idle,{ENDPOINTS}"),
        # Naming ours turns off all others, a platform among them: so those that would load are named too.
        ("", ["pdd_idle", "ascend"], f"pdd_idle,{ENDPOINTS},ascend"),
        ("mine", ["pdd_idle", "ascend"], f"pdd_idle,{ENDPOINTS},mine"),
    ],
)
def test_our_plugins_load_and_turn_off_none(set_by_user: str, installed: Sequence[str], expected: str) -> None:
    plan = launch(POD | {"VLLM_PLUGINS": set_by_user}, [], installed_plugins=installed)
    assert plan.environment["VLLM_PLUGINS"] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PDD_ROLE": ""}, "PDD_ROLE is not set: expected one of prefill, relay-decode, main-decode, renderer"),
        ({"PDD_ROLE": "decode"}, "PDD_ROLE is 'decode': expected one of prefill, relay-decode, main-decode, renderer"),
        ({"PDD_MODEL": ""}, "PDD_MODEL is not set: expected a path or a Hugging Face repository id"),
        ({"PDD_SERVED_MODEL_NAME": " "}, "PDD_SERVED_MODEL_NAME is not set: expected the name that clients ask for"),
        ({"POD_IP": ""}, "POD_IP is not set: expected the pod's address, which the other engines reach"),
        ({"PDD_PORT": "80000"}, "PDD_PORT is '80000': expected a whole number from 1 up to 65535"),
        ({"PDD_MAX_MODEL_LEN": "4k"}, "PDD_MAX_MODEL_LEN is '4k': expected a whole number from 1"),
        ({"PDD_BLOCK_SIZE": "0"}, "PDD_BLOCK_SIZE is '0': expected a whole number from 1"),
        ({"PDD_TENSOR_PARALLEL": "-1"}, "PDD_TENSOR_PARALLEL is '-1': expected a whole number from 1"),
        ({"PDD_PLATFORM": "gpu"}, "PDD_PLATFORM is 'gpu': expected one of cpu, nothing"),
    ],
)
def test_an_error_says_what_was_expected(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError) as error:
        launch(POD | change, [])
    assert str(error.value) == message
