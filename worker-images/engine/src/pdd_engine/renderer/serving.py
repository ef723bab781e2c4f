"""The two endpoints: vLLM's own classes, made of vLLM's own arguments, without what cannot pass to another engine."""

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import State
from vllm.config import LoRAConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import resolve_default_chat_template_kwargs
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve.utils.fingerprint import set_default_fingerprint_mode
from vllm.exceptions import VLLMValidationError
from vllm.renderers.chat_utils import has_non_text_content, load_chat_template

from pdd_engine.plugins.version import is_our_vllm
from pdd_engine.renderer.core import RouterCore
from pdd_engine.renderer.engine import RouterEngine

REFUSED = {
    "kv_transfer_params": "transfers are made by PDD itself",
    "ec_transfer_params": "transfers are made by PDD itself",
    "use_beam_search": "it would be a request for every token and beam",
    "prompt_embeds": "prompts are text here",
    "logprob_token_ids": "the engines give the likeliest tokens only",
}
MOST_PROMPT_SCORES = 150_000
"""Entries of prompt_logprobs, over a whole prompt: a message of a channel has 16 MiB."""


class Chat(OpenAIServingChat):  # type: ignore[misc]
    async def render_chat_request(self, request: Any) -> Any:
        refuse(request)
        if has_non_text_content(request.messages):  # before it is fetched
            raise _refusal("messages", "pictures, sounds and embeddings", "prompts are text here")
        result = await super().render_chat_request(request)
        if isinstance(result, tuple):
            refuse_inputs(result[1], _prompt_logprobs(request, request.top_logprobs))
        return result


class Completion(OpenAIServingCompletion):  # type: ignore[misc]
    async def render_completion_request(self, request: Any) -> Any:
        refuse(request)
        result = await super().render_completion_request(request)
        if isinstance(result, list):
            refuse_inputs(result, _prompt_logprobs(request, request.logprobs))
        return result


def _prompt_logprobs(request: Any, echoed: int | None) -> int | None:
    """As both requests of vLLM's do when they become sampling parameters."""
    asked: int | None = request.prompt_logprobs
    return echoed if asked is None and request.echo else asked


def refuse(request: Any) -> None:
    """What one vLLM could do and a prompt that passes from engine to engine cannot: vLLM answers this with 400."""
    xargs = request.vllm_xargs or {}
    for name, reason in REFUSED.items():
        if getattr(request, name, None) not in (None, False, []) or name in xargs:
            raise _refusal(name, name, reason)


def refuse_inputs(inputs: Iterable[Any], prompt_logprobs: int | None) -> None:
    for prompt in inputs:
        if prompt["type"] != "token":
            raise _refusal("messages", "a prompt with embeddings", "prompts are text here")
        if prompt_logprobs is not None:
            length = len(prompt["prompt_token_ids"])
            most = MOST_PROMPT_SCORES // max(length, 1) - 1
            if prompt_logprobs > most or prompt_logprobs < 0:
                raise VLLMValidationError(
                    f"prompt_logprobs of a prompt of {length} tokens can be at most {most} here.",
                    parameter="prompt_logprobs", value=prompt_logprobs,
                )  # fmt: skip


def _refusal(parameter: str, what: str, reason: str) -> VLLMValidationError:
    return VLLMValidationError(f"This deployment does not take {what}: leave it out, {reason}.", parameter=parameter)


async def init_state(state: State, args: Namespace) -> None:
    """What vLLM's `init_app_state` and `init_generate_state` do for these two, beside what its renderer did already."""
    is_our_vllm("the renderer is not tried with it")
    config = state.vllm_config
    _complete_config(config, args)
    names = args.served_model_name or [args.model]
    core = RouterCore(names[0], config.model_config.get_vocab_size())
    engine = RouterEngine(config, state.online_renderer.renderer, core)
    models = OpenAIServingModels(
        engine,
        [BaseModelPath(name=name, model_path=args.model) for name in names],
        lora_modules=args.lora_modules,
    )
    await models.init_static_loras()
    set_default_fingerprint_mode(args.fingerprint_mode, args.fingerprint_value)
    if args.tool_call_parser is not None:
        from vllm.parser.metrics import init_parser_metrics  # noqa: PLC0415 - as vLLM: it registers metrics

        init_parser_metrics(model_name=names[0])
    common: dict[str, Any] = {
        "online_renderer": state.online_renderer,
        "request_logger": None,  # it would log prompts
        "return_tokens_as_token_ids": args.return_tokens_as_token_ids,
        "enable_prompt_tokens_details": args.enable_prompt_tokens_details,
        "enable_force_include_usage": args.enable_force_include_usage,
    }
    state.openai_serving_models = models
    state.openai_serving_completion = Completion(engine, models, **common)
    state.openai_serving_chat = Chat(
        engine,
        models,
        args.response_role,
        chat_template=load_chat_template(args.chat_template),
        chat_template_content_format=args.chat_template_content_format,
        default_chat_template_kwargs=resolve_default_chat_template_kwargs(args),
        trust_request_chat_template=args.trust_request_chat_template,
        enable_auto_tools=args.enable_auto_tool_choice,
        exclude_tools_when_tool_choice_none=args.exclude_tools_when_tool_choice_none,
        tool_parser=args.tool_call_parser,
        tool_strict_level=args.tool_strict_level,
        reasoning_parser=args.reasoning_parser or config.structured_outputs_config.reasoning_parser,
        **common,
    )
    state.engine_client = engine
    state.pdd_core = core


def _complete_config(config: Any, args: Namespace) -> None:
    """vLLM's renderer makes a configuration of the model alone; these are what requests are checked against."""
    engine_args = AsyncEngineArgs.from_cli_args(args)
    config.scheduler_config.stream_interval = engine_args.stream_interval
    config.shutdown_timeout = engine_args.shutdown_timeout
    if engine_args.enable_lora:
        config.lora_config = LoRAConfig()
    engine_args._set_default_reasoning_config_args()
    if engine_args.reasoning_config is not None:
        engine_args.reasoning_config.initialize_token_ids(config.model_config)
        config.reasoning_config = engine_args.reasoning_config
