"""Every feature of a request, and what becomes of it: docs/api.md has its table from here, the parity proofs run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pdd_e2e.deployments import ADAPTER
from pdd_e2e.parity.steering import (
    COUNTING,
    MULTI_BYTE,
    REASONING,
    TOOL_CALL,
    say,
)

CHAT, TEXT = "chat/completions", "completions"
MODEL = "tiny"


class Disposition(StrEnum):
    TRANSPARENT = "transparent"
    MADE = "made transparent"
    ONE_ENGINE = "P-MD only"
    REFUSED = "refused"


EXPLAINED = {
    Disposition.TRANSPARENT: "the engines do it, and another engine goes on exactly from the ids",
    Disposition.MADE: "renderer or router do it, over the one stream of ids, whichever engine made them",
    Disposition.ONE_ENGINE: "an engine counts, parses or draws over its own output: no relay, and an engine that dies "
    "ends the answer",
    Disposition.REFUSED: "400, or 404 for a route, in the API's error format",
}


@dataclass(frozen=True)
class Example:
    """A request that shows a feature. `body` lies over the route's plain body.

    `stays`: the field that keeps it on one engine. `says`: something that the answer's text must have, so that the
    example shows what it is meant to show. `parameter`: of a refusal. `as_vllm`: it is refused in vLLM's own words.
    """

    route: str
    body: Mapping[str, Any]
    stays: str = ""
    says: str = ""
    parameter: str | None = None
    as_vllm: bool = False

    def whole(self) -> dict[str, Any]:
        plain = {"messages": [user("How much?")]} if self.route == CHAT else {"prompt": "Rivers are"}
        return {"model": MODEL, "max_tokens": 10, "temperature": 0} | plain | dict(self.body)


@dataclass(frozen=True)
class Feature:
    name: str
    disposition: Disposition
    why: str
    examples: Sequence[Example]

    @property
    def routes(self) -> str:
        names = {"chat" if example.route == CHAT else "completions" for example in self.examples}
        return ", ".join(sorted(names))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(body: Mapping[str, Any], **more: Any) -> Example:
    return Example(CHAT, body, **more)


def text(body: Mapping[str, Any], **more: Any) -> Example:
    return Example(TEXT, body, **more)


def both(body: Mapping[str, Any], **more: Any) -> tuple[Example, Example]:
    return chat(body, **more), text(body, **more)


_SCHEMA = {"type": "object", "properties": {"x": {"enum": [4, 5]}}, "required": ["x"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": _SCHEMA}}]
_NAMED = {"type": "function", "function": {"name": "add"}}
_ONE_CALL = '<tool_call>\n{"name": "add", "arguments": {"x": 4}}\n</tool_call>'
_TWO_CALLS = {"regex": _ONE_CALL.replace("{", r"\{").replace("}", r"\}") + r"\n" + "<tool_call>"
              r'\{"name": "add", "arguments": \{"x": 5\}\}</tool_call>'}  # fmt: skip
TOOL_ANSWER = {"tools": TOOLS, "tool_choice": "auto", **say(TOOL_CALL)}
REASONED_ANSWER = {"chat_template_kwargs": {"enable_thinking": True}, **say(REASONING)}
MULTI_BYTE_ANSWER = say(MULTI_BYTE)
COUNTED_ANSWER = say(COUNTING)
_HISTORY = [
    {"role": "system", "content": "You add."},
    user("4 and 5?"),
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": '{"x": 4}'}}]},
    {"role": "tool", "tool_call_id": "call-1", "content": "9"},
]  # fmt: skip
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}

_T, _M, _O, _R = Disposition.TRANSPARENT, Disposition.MADE, Disposition.ONE_ENGINE, Disposition.REFUSED

FEATURES: Sequence[Feature] = (
    # --- sampling
    Feature("`temperature`", _T, "a draw without a seed depends on nothing that came before", both({"temperature": 0})),
    Feature("`top_p`, `top_k`, `min_p`", _T, "decided from one token's logits", (
        *both({"temperature": 0.8, "top_k": 1}),
        text({"temperature": 0.8, "top_p": 1e-6}),
        text({"temperature": 0.8, "min_p": 1.0}),
    )),
    Feature("`seed`", _O, "vLLM's generator is the engine's own and its state is not in the ids (with engines whose "
            "`position_seeds` is true: transparent)",
            (*both({"temperature": 1.0, "seed": 3}, stays="seed"),
             text({"temperature": 1.0, "seed": 3, "n": 2}, stays="seed"))),
    Feature("`n`", _M, "each choice is a work of its own, on its own way; how chunks of several choices interleave is "
            "a matter of time in vLLM too",
            both({"n": 2, "temperature": 0.8, "top_k": 1})),
    Feature("`repetition_penalty`", _T, "over prompt and output alike", both({"repetition_penalty": 1.5})),
    Feature("`presence_penalty`", _O, "over the output alone, which the next engine sees as prompt",
            both({"presence_penalty": 1.5}, stays="presence_penalty")),
    Feature("`frequency_penalty`", _O, "as above", both({"frequency_penalty": 1.5}, stays="frequency_penalty")),
    Feature("`logit_bias`", _T, "the same for every token", both({"logit_bias": {"2000": 100.0, "2001": -100}})),
    Feature("`allowed_token_ids`", _T, "the same for every token", both({"allowed_token_ids": [1000, 2000, 3000]})),
    Feature("`bad_words`", _O, "matched over the output alone", both({"bad_words": ["e", " the"]}, stays="bad_words")),
    # --- lengths and ends
    Feature("`max_tokens`, `max_completion_tokens`", _M, "the router lowers it by what is out already", (
        *both({"max_tokens": 5}), chat({"max_tokens": None, "max_completion_tokens": 6}), text({"max_tokens": 1}),
    )),
    Feature("`min_tokens`", _M, "the router lowers it by what is out already",
            (chat(COUNTED_ANSWER | {"min_tokens": 8, "max_tokens": 9}), text({"min_tokens": 6}))),
    Feature("`stop`", _M, "matched in the renderer, also across a handoff", (
        chat(COUNTED_ANSWER | {"stop": ["three four"]}, says="one two "),
        chat(COUNTED_ANSWER | {"stop": "two"}, says="one "),
        text(say(COUNTING, end_of_turn=False) | {"stop": ["nothing", "five s"]}, says="four "),
    )),
    Feature("`include_stop_str_in_output`", _M, "as `stop`", (
        chat(COUNTED_ANSWER | {"stop": ["three four"], "include_stop_str_in_output": True}, says="three four"),
        text(say(COUNTING, end_of_turn=False) | {"stop": ["e f"], "include_stop_str_in_output": True}, says="three f"),
    )),
    Feature("`stop_token_ids`", _T, "decided from one token",
            both(say(COUNTING, end_of_turn=False) | {"stop_token_ids": [COUNTING[4]]}, says="three four")),
    Feature("`ignore_eos`", _T, "decided from one token",
            (chat(COUNTED_ANSWER | {"ignore_eos": True, "max_tokens": 11}), text({"ignore_eos": True}))),
    Feature("`repetition_detection`", _O, "counts over the output alone",
            both({"allowed_token_ids": [1000], "repetition_detection": {"max_pattern_size": 2, "min_count": 3}},
                 stays="repetition_detection")),
    # --- logprobs
    Feature("`logprobs`, `top_logprobs`", _T, "scores of each token, with whom it came", (
        chat({"logprobs": True, "top_logprobs": 3}), chat({"logprobs": True}), text({"logprobs": 3}),
        text({"logprobs": 0}),
    )),
    Feature("`prompt_logprobs`", _M, "P scores the prompt; not with `stream`, as in vLLM",
            both({"prompt_logprobs": 2})),
    Feature("`logprob_token_ids`", _R, "the engines' ids-in, ids-out API gives the likeliest tokens only",
            (chat({"logprobs": True, "logprob_token_ids": [5, 6]}, parameter="logprob_token_ids"),
             text({"logprobs": 1, "logprob_token_ids": [5, 6]}, parameter="logprob_token_ids"))),
    # --- forms
    Feature("`response_format`", _O, "a grammar's state is that of the engine that began it", (
        *both({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}},
              stays="structured_outputs"),
        *both({"response_format": {"type": "json_object"}}, stays="structured_outputs"),
    )),
    Feature("`response_format` of type `text`", _M, "means nothing", both({"response_format": {"type": "text"}})),
    Feature("`structured_outputs`: `json`, `regex`, `grammar`, `choice`", _O, "as above", (
        *both({"structured_outputs": {"regex": "[a-z]{3} [0-9]{2}"}}, stays="structured_outputs"),
        text({"structured_outputs": {"choice": ["rouge", "vert"]}}, stays="structured_outputs"),
        chat({"structured_outputs": {"grammar": 'root ::= "oui" | "non"'}}, stays="structured_outputs"),
        chat({"structured_outputs": {"json": _SCHEMA}}, stays="structured_outputs", says="{"),
    )),
    # --- tools and reasoning
    Feature("`tools` with `tool_choice`: `auto`, `none`", _M, "the parser is in the renderer", (
        chat(TOOL_ANSWER), chat({"tools": TOOLS, "tool_choice": "none"}), chat({"tools": TOOLS}),
    )),
    Feature("`tool_choice`: `required` or a function", _O, "a grammar, as above", (
        chat({"tools": TOOLS, "tool_choice": "required", "max_tokens": 48}, stays="structured_outputs"),
        chat({"tools": TOOLS, "tool_choice": _NAMED, "max_tokens": 24}, stays="structured_outputs"),
    )),
    Feature("`parallel_tool_calls: false`", _O, "a grammar, as above", (
        chat({"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False}, stays="structured_outputs"),
    )),
    Feature("several tool calls in one answer", _M, "the parser is in the renderer (here a regex makes the model say "
            "them, so it stays on one engine)", (
        chat({"tools": TOOLS, "tool_choice": "auto", "structured_outputs": _TWO_CALLS, "max_tokens": 120},
             stays="structured_outputs"),
    )),
    Feature("tool calls and answers in `messages`", _M, "the template is in the renderer", (
        chat({"messages": _HISTORY, "tools": TOOLS}),
    )),
    Feature("reasoning (`reasoning` beside `content`), `include_reasoning`", _M, "the parser is in the renderer",
            (chat(REASONED_ANSWER), chat(REASONED_ANSWER | {"include_reasoning": False}))),
    Feature("`reasoning_effort`, `chat_template_kwargs`", _M, "the template is in the renderer", (
        chat({"reasoning_effort": "low"}), chat({"reasoning_effort": "none"}),
        chat({"chat_template_kwargs": {"enable_thinking": True, "more": 1}}),
    )),
    Feature("`thinking_token_budget`", _O, "counts over the output alone",
            (chat({"thinking_token_budget": 4, "chat_template_kwargs": {"enable_thinking": True}},
                  stays="thinking_token_budget"),)),
    # --- prompts
    Feature("prompts as text, as ids, in batches", _M, "each prompt is one work of its own, on its own way", (
        text({"prompt": "Once upon a time there was"}), text({"prompt": [1000, 2000, 3000, 4000]}),
        text({"prompt": ["The first", "And the second is"]}), text({"prompt": [[1000, 2000], [3000, 4000, 5000]]}),
    )),
    Feature("`messages` of several turns, parts of type `text`", _M, "the template is in the renderer", (
        chat({"messages": [{"role": "system", "content": "Be brief."}, user("a"), {"role": "assistant", "content": "b"},
                           {"role": "user", "content": [{"type": "text", "text": "c"}]}]}),
    )),
    Feature("`echo`", _M, "text is made in the renderer", (
        text({"echo": True}, says="Rivers are"), text({"echo": True, "logprobs": 2}),
        text({"echo": True, "max_tokens": 0}),
        chat({"echo": True, "messages": [user("a"), {"role": "assistant", "content": "So be"}],
              "add_generation_prompt": False, "continue_final_message": True}, says="So be"),
    )),
    Feature("`continue_final_message`, `add_generation_prompt`", _M, "the template is in the renderer", (
        chat({"messages": [user("a"), {"role": "assistant", "content": "So"}], "add_generation_prompt": False,
              "continue_final_message": True}),
        chat({"add_generation_prompt": False}),
    )),
    Feature("`add_special_tokens`, `documents`", _M, "tokens are made in the renderer", (
        *both({"add_special_tokens": True}), chat({"documents": [{"title": "a", "text": "b"}]}),
    )),
    Feature("`truncate_prompt_tokens`, `truncation_side`", _M, "tokens are made in the renderer", (
        text({"prompt": "a b c d e f g h i j", "truncate_prompt_tokens": 4}),
        chat({"truncate_prompt_tokens": 8, "truncation_side": "right"}),
    )),
    # --- what the answer has
    Feature("`return_token_ids`, `return_prompt_text`, `return_tokens_as_token_ids`", _M, "the renderer has them", (
        *both({"return_token_ids": True}), chat({"return_prompt_text": True}),
        text({"logprobs": 1, "return_tokens_as_token_ids": True}),
    )),
    Feature("`skip_special_tokens`, `spaces_between_special_tokens`", _M, "text is made in the renderer", (
        chat(COUNTED_ANSWER | {"skip_special_tokens": False, "ignore_eos": True, "max_tokens": 10}, says="<|im_end|>"),
        text({"spaces_between_special_tokens": False}),
    )),
    Feature("characters of several tokens", _M, "one detokenizer, in the renderer", (
        chat(MULTI_BYTE_ANSWER, says="🦙🧭 čaj ☕"), text(say(MULTI_BYTE, end_of_turn=False), says="🦙🧭"),
    )),
    Feature("`stream_options`: `include_usage`, `continuous_usage_stats`", _M, "counted in the renderer", (
        *both({"stream_options": {"include_usage": True}}),
        *both({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    )),
    Feature("`stream_interval`", _M, "chunks are made in the renderer", both({"stream_interval": 4})),
    # --- passed on
    Feature("`cache_salt`", _T, "goes to every engine", both({"cache_salt": "pepper"})),
    Feature("`priority`", _M, "goes to every engine; with engines that schedule by it, else refused as by vLLM",
            both({"priority": 0})),
    Feature("LoRA adapters as `model`", _M, "the name goes to every engine; all roles start with the same "
            "`--lora-modules` (`spec.engine.args`). An unknown one is 404",
            (*both({"model": ADAPTER}), *both({"model": "no-such-adapter"}))),
    Feature("`user`, `metadata`, `store`, `service_tier` and unknown fields", _M, "taken and ignored, as by vLLM",
            both({"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "nonsense": 1})),
    # --- refused
    Feature("`suffix`", _R, "as vLLM", (text({"suffix": "x"}, as_vllm=True, parameter="suffix"),)),
    Feature("`use_beam_search`", _R, "one request for each token and beam", (
        *both({"use_beam_search": True}, parameter="use_beam_search"),
    )),
    Feature("`prompt_embeds`", _R, "a prompt is ids here, and a handoff goes on from them",
            (text({"prompt_embeds": "AAAA"}, parameter="prompt_embeds"),)),
    Feature("images, audio and video in `messages`", _R, "prompts are text",
            (chat({"messages": [{"role": "user", "content": [_IMAGE]}]}, parameter="messages"),
             chat({"messages": [{"role": "user", "content": [_AUDIO]}]}, parameter="messages"))),
    Feature("`kv_transfer_params`, `ec_transfer_params`", _R, "the transfers are PDD's own", (
        *both({"kv_transfer_params": {"do_remote_decode": True}}, parameter="kv_transfer_params"),
        chat({"ec_transfer_params": {"a": 1}}, parameter="ec_transfer_params"),
    )),
    Feature("`vllm_xargs`", _O, "what an extension makes of it is not known",
            both({"vllm_xargs": {"a": 1}}, stays="extra_args")),
)  # fmt: skip

NOT_SERVED = ("responses", "embeddings", "audio/transcriptions", "messages", "images/generations", "moderations",
              "files", "batches", "score", "rerank", "chat/completions/batch")  # fmt: skip
"""Routes of the OpenAI API and of vLLM that are 404 here."""
