"""What a client may ask, what of it goes to the router, and how the rest is refused."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def part(**part: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, part]}]}


@pytest.fixture
def play(tools: Any) -> Any:
    return lambda add: [tools.record(add, [100, 200, 300])]


def error_of(asked: Any, status: int = 400) -> Any:
    assert asked.status == status, asked.text
    error = asked.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert asked.adds == []
    return error


class TestWhatIsSent:
    def test_a_chat(self, renderer: Any, play: Any) -> None:
        asked = renderer.chat(play, model="assistant", cache_salt="pepper", priority=3, messages=MESSAGES)
        (add,) = asked.adds
        prompt = renderer.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
        assert add["session"] == "router-1/7"
        assert add["id"].startswith("chatcmpl-q-")
        assert add["request"] == {
            "model": "assistant",
            "token_ids": prompt,
            "sampling_params": {"max_tokens": 2048 - len(prompt), "detokenize": False},
            "cache_salt": "pepper",
            "priority": 3,
            "reasoning_ended": None,
            "reasoning_parser_kwargs": None,
        }

    @pytest.mark.parametrize(
        ("body", "params"),
        [
            ({}, {}),
            ({"temperature": 0}, {"temperature": 0.0}),
            ({"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.1},
             {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.1}),
            ({"presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.2},
             {"presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.2}),
            ({"seed": 5}, {"seed": 5}),
            ({"max_tokens": 7, "min_tokens": 2}, {"max_tokens": 7, "min_tokens": 2}),
            ({"stop": "x", "stop_token_ids": [9, 8], "include_stop_str_in_output": True}, {"stop_token_ids": [9, 8]}),
            ({"ignore_eos": True, "skip_special_tokens": False, "spaces_between_special_tokens": False},
             {"ignore_eos": True}),
            ({"stream": True, "stream_interval": 5}, {}),
            ({"logit_bias": {"5": 1.5}, "allowed_token_ids": [5, 6], "bad_words": ["no"]},
             {"logit_bias": {"5": 1.5}, "allowed_token_ids": [5, 6], "bad_words": ["no"]}),
            ({"logprobs": 0}, {"logprobs": 0}),
            ({"logprobs": 1}, {"logprobs": 2}),
            ({"logprobs": 20}, {"logprobs": 21}),
            ({"logprobs": 2, "echo": True}, {"logprobs": 3, "prompt_logprobs": 2}),
            ({"prompt_logprobs": 20}, {"prompt_logprobs": 20}),
            ({"watermarking": False}, {"watermarking": False}),
            ({"vllm_xargs": {"mine": 1}}, {"extra_args": {"mine": 1}}),
            ({"repetition_detection": {"max_pattern_size": 4, "min_count": 3}},
             {"repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 0, "min_count": 3}}),
            ({"structured_outputs": {"regex": ""}}, {"structured_outputs": {"regex": ""}}),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
             {"structured_outputs": {"json": SCHEMA}}),
        ],
    )  # fmt: skip
    def test_of_the_sampling_parameters(self, renderer: Any, play: Any, body: dict[str, Any], params: Any) -> None:
        asked = renderer.complete(play, **body)
        assert asked.status == 200, asked.text
        sent = asked.adds[0]["request"]["sampling_params"]
        assert sent == {"max_tokens": 16, "detokenize": False} | params

    def test_an_engine_takes_it(self, parsing: Any, play: Any) -> None:
        from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest  # noqa: PLC0415

        body = {
            "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1}, "response_format": {"type": "json_object"},
            "stop": ["x"], "seed": 3, "tools": [{"type": "function", "function": {"name": "f"}}],
        }  # fmt: skip
        asked = parsing.chat(play, **body)
        assert asked.status == 200, asked.text
        request = GenerateRequest.model_validate(asked.adds[0]["request"])
        assert request.sampling_params.logit_bias == {5: 1.0}
        assert request.sampling_params.structured_outputs.json_object
        assert request.is_sampling_param_provided("max_tokens")
        assert request.reasoning_parser_kwargs is not None

    def test_every_choice_has_a_seed_of_its_own(self, renderer: Any, play: Any) -> None:
        asked = renderer.chat(play, n=3, seed=40)
        assert [add["request"]["sampling_params"]["seed"] for add in asked.adds] == [40, 41, 42]
        assert len({add["id"] for add in asked.adds}) == 3
        assert {add["session"] for add in asked.adds} == {"router-1/7"}
        assert all("n" not in add["request"]["sampling_params"] for add in asked.adds)
        unseeded = renderer.chat(play, n=2)
        assert all("seed" not in add["request"]["sampling_params"] for add in unseeded.adds)

    def test_an_adapter_is_called_by_its_name(self, parsing: Any, play: Any) -> None:
        asked = parsing.chat(play, model="tuned")
        assert asked.adds[0]["request"]["model"] == asked.json["model"] == "tuned"

    def test_a_budget_for_thinking(self, parsing: Any, play: Any) -> None:
        asked = parsing.chat(play, thinking_token_budget=9, chat_template_kwargs={"enable_thinking": True})
        request = asked.adds[0]["request"]
        assert request["sampling_params"]["thinking_token_budget"] == 9
        assert request["reasoning_ended"] is False
        assert request["reasoning_parser_kwargs"]["chat_template_kwargs"]["enable_thinking"] is True


class TestWhatIsRefused:
    @pytest.mark.parametrize("streams", [False, True])
    @pytest.mark.parametrize(
        ("path", "body", "param"),
        [
            (CHAT, {"kv_transfer_params": {"do_remote_prefill": True}}, "kv_transfer_params"),
            (COMPLETE, {"kv_transfer_params": {"do_remote_prefill": True}}, "kv_transfer_params"),
            (CHAT, {"ec_transfer_params": {"a": 1}}, "ec_transfer_params"),
            (COMPLETE, {"vllm_xargs": {"kv_transfer_params": "x"}}, "kv_transfer_params"),
            (CHAT, {"use_beam_search": True}, "use_beam_search"),
            (COMPLETE, {"use_beam_search": True}, "use_beam_search"),
            (COMPLETE, {"prompt_embeds": "AAAA", "prompt": None}, "prompt_embeds"),
            (CHAT, {"logprobs": True, "logprob_token_ids": [5]}, "logprob_token_ids"),
            (CHAT, part(type="image_url", image_url={"url": "http://host.invalid/picture"}), "messages"),
            (CHAT, part(image_url="http://host.invalid/picture"), "messages"),
            (CHAT, part(type="text", text="Hi", uuid="1", image_url="http://host.invalid/picture"), "messages"),
            (CHAT, part(type="prompt_embeds", data="AAAA"), "messages"),
        ],
    )  # fmt: skip
    def test_with_what_to_leave_out(
        self, renderer: Any, play: Any, path: str, body: dict[str, Any], param: str, streams: bool
    ) -> None:
        whole = ({"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}) | body | {"stream": streams}
        error = error_of(renderer.ask(path, play, whole))
        if error["message"] != "Streaming is not currently supported with beam search":  # vLLM's own
            assert (error["type"], error["param"]) == ("BadRequestError", param)
            assert "leave it out" in error["message"]

    def test_more_prompt_logprobs_than_a_message_holds(self, renderer: Any, play: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr("pdd_engine.renderer.serving.MOST_PROMPT_SCORES", 100)
        asked = renderer.complete(play, prompt=[5] * 20, prompt_logprobs=4)
        assert asked.status == 200
        error = error_of(renderer.complete(play, prompt=[5] * 20, prompt_logprobs=5))
        assert error["message"].startswith("prompt_logprobs of a prompt of 20 tokens can be at most 4 here.")
        assert error["param"] == "prompt_logprobs"
        echo = {"echo": True, "logprobs": True, "top_logprobs": 5}
        error_of(renderer.chat(play, **echo))
        assert renderer.chat(play, **echo | {"prompt_logprobs": 1}).status == 200

    @pytest.mark.parametrize(
        ("path", "body", "status", "says"),
        [
            (CHAT, b"{", 400, "JSON decode error"),
            (CHAT, b"", 400, "Field required"),
            (CHAT, b"[]", 400, "valid dictionary"),
            (CHAT, {}, 400, "Field required"),
            (CHAT, {"messages": "Hi"}, 400, "list"),
            (CHAT, {"messages": []}, 400, ""),
            (CHAT, {"messages": [{"role": "user", "content": 5}]}, 400, ""),
            (CHAT, {"messages": MESSAGES, "model": "other"}, 404, "The model `other` does not exist"),
            (CHAT, {"messages": MESSAGES, "temperature": "hot"}, 400, "temperature"),
            (CHAT, {"messages": MESSAGES, "temperature": -1}, 400, "temperature"),
            (CHAT, {"messages": MESSAGES, "n": 2, "temperature": 0}, 400, "n must be 1 when using greedy sampling"),
            (CHAT, {"messages": MESSAGES, "n": 0}, 400, "n must be at least 1"),
            (CHAT, {"messages": MESSAGES, "max_tokens": 4000}, 400, "max_tokens"),
            (CHAT, {"messages": MESSAGES, "max_completion_tokens": 0}, 400, "max_tokens"),
            (CHAT, {"messages": [{"role": "user", "content": "long " * 5000}]}, 400, "2048"),
            (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 21}, 400, "logprobs"),
            (CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}}, 400, "stream"),
            (CHAT, {"messages": MESSAGES, "tools": [{}]}, 400, "Field required"),
            (CHAT, {"messages": MESSAGES, "logit_bias": {"99999999": 1}}, 400, "logit_bias"),
            (CHAT, {"messages": MESSAGES, "response_format": {"type": "json_schema"}}, 400, "json_schema"),
            (CHAT, {"messages": MESSAGES, "structured_outputs": {"json": {"type": 5}}}, 400, ""),
            (COMPLETE, {}, 400, "prompt"),
            (COMPLETE, {"prompt": {"a": 1}}, 400, "prompt"),
            (COMPLETE, {"prompt": [5] * 3000}, 400, "2048"),
            (COMPLETE, {"prompt": [99999999]}, 400, "99999999"),
            (COMPLETE, {"prompt": "Hi", "max_tokens": 5000}, 400, "max_tokens"),
            (COMPLETE, {"prompt": "Hi", "logprobs": 21}, 400, "Requested sample logprobs of 21"),
            (COMPLETE, {"prompt": "Hi", "prompt_logprobs": 21}, 400, "Requested prompt logprobs of 21"),
            (COMPLETE, {"prompt": "Hi", "prompt_logprobs": -1}, 400, "prompt_logprobs"),
            (COMPLETE, {"prompt": "Hi", "model": "other"}, 404, "does not exist"),
        ],
    )  # fmt: skip
    def test_by_vllm(self, renderer: Any, play: Any, path: str, body: Any, status: int, says: str) -> None:
        assert says in error_of(renderer.ask(path, play, body), status)["message"]

    @pytest.mark.parametrize("depth", [900, 100_000])
    @pytest.mark.parametrize(
        ("opening", "closing"), [(b"[", b""), (b'{"messages":', b""), (b"[", b"]"), (b'{"messages":', b"5}")]
    )
    @pytest.mark.parametrize("path", [CHAT, COMPLETE])
    def test_deep_nesting(
        self, renderer: Any, play: Any, path: str, opening: bytes, closing: bytes, depth: int
    ) -> None:
        nested = opening * depth + closing[:-1] + closing[-1:] * depth
        asked = renderer.ask(path, play, nested)
        assert (asked.status, asked.adds) == (400, [])
        asked = renderer.ask(path, play, b'{"prompt": ' + nested + b', "messages": ' + nested + b"}")
        assert (asked.status, asked.adds) == (400, [])
        assert renderer.chat(play).status == 200

    @pytest.mark.parametrize(
        "junk", [b"\x00\xff" * 2_500_000, b'{"messages": "' + b"x" * 5_000_000, b"[1," * 1_700_000]
    )
    def test_five_megabytes_of_junk(self, renderer: Any, play: Any, junk: bytes) -> None:
        asked = renderer.ask(CHAT, play, junk)
        assert (asked.status, asked.adds) == (400, [])
        assert renderer.chat(play).status == 200

    @pytest.mark.parametrize(
        ("session", "says"), [("router-2/1", "No channel 'router-2'"), ("", "x-pdd-session is missing")]
    )
    @pytest.mark.parametrize("path", [CHAT, COMPLETE])
    def test_without_a_channel(self, renderer: Any, play: Any, path: str, session: str, says: str) -> None:
        error = error_of(renderer.ask(path, play, b"not looked at", session=session), 503)
        assert error["type"] == "ServiceUnavailableError"
        assert says in error["message"]

    @pytest.mark.parametrize(
        "path", ["/v1/chat/completions/batch", "/v1/responses", "/v1/embeddings", "/v1/messages", "/pdd/v1/detokenize"]
    )
    def test_what_is_not_there(self, renderer: Any, play: Any, path: str) -> None:
        assert renderer.ask(path, play, {}).status == 404


class TestWhatTheRouterSays:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"token_ids": [49152]}, "token 49152 is not in the vocabulary of 49152"),
            ({"logprobs": None}, "logprobs has 0 entries for 1 tokens"),
            ({"logprobs": []}, "logprobs has 0 entries for 1 tokens"),
            ({"logprobs": [{"token_id": 101, "logprob": -1}]}, "logprobs is of token 101 where the token is 100"),
            ({"logprobs": [{"token_id": 100, "logprob": -1, "top_logprobs": [{"token_id": 49152, "logprob": -1}]}]},
             "tokens outside the vocabulary"),
            ({"prompt_logprobs": None}, "no prompt_logprobs"),
            ({"prompt_logprobs": [None]}, "prompt_logprobs has 1 entries"),
            ({"prompt_logprobs": [None, {"7": {"logprob": -1, "rank": 1}}]}, "lacks token 6 of the prompt"),
            ({"prompt_logprobs": [None, {"6": {"logprob": -1, "rank": 1}, "49152": {"logprob": -1, "rank": 2}}]},
             "tokens outside the vocabulary"),
            ({"prompt_logprobs": [None, None]}, "lacks token 6 of the prompt"),
            ({"finish_reason": "error"}, ""),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("streams", [False, True])
    def test_an_answer_that_fails(
        self, renderer: Any, tools: Any, log: Any, change: dict[str, Any], says: str, streams: bool
    ) -> None:
        def play(add: dict[str, Any]) -> Any:
            first, *rest = tools.record(add, [100, 200])
            return [[first | change, *rest]]

        asked = renderer.complete(play, prompt=[5, 6], logprobs=1, echo=True, max_tokens=5, stream=streams)
        if streams:
            (event,) = asked.events
        else:
            assert asked.status == 500
            event = asked.json
        assert (event["error"]["code"], event["error"]["type"]) == (500, "InternalServerError")
        assert says in log.text
        assert asked.aborted == ([] if "finish_reason" in change else [asked.adds[0]["id"]])
        assert renderer.chat(lambda add: [tools.record(add, [100])]).status == 200

    def test_what_nobody_waits_for_is_dropped(self, renderer: Any, tools: Any) -> None:
        def play(add: dict[str, Any]) -> Any:
            outputs = tools.record(add, [100, 200])
            stranger = {"id": "unknown", "token_ids": [1], "finish_reason": "stop"}
            late = {"token_ids": [300], "finish_reason": "length"}
            return [[stranger, *outputs, late, stranger], [late]]

        asked = renderer.chat(play, return_token_ids=True)
        assert asked.json["choices"][0]["token_ids"] == [100, 200]

    @pytest.mark.parametrize(
        "text",
        ["", "junk", "{}", '{"add": 1}', "[1]", "[{}]", '[{"id": "a"}]', '[{"id": 5, "token_ids": []}]', "[" * 100_000,
         '[{"id": "a", "token_ids": [-1]}]', '[{"id": "a", "token_ids": [2147483648]}]',
         '[{"id": "a", "token_ids": [1], "logprobs": [{"token_id": 1, "logprob": -1, "rank": 99999999999}]}]',
         '[{"id": "a", "token_ids": ["5"]}]', '[{"id": "a", "token_ids": [1.5]}]',
         '[{"id": "a", "token_ids": [], "finish_reason": "tired"}]',
         '[{"id": "a", "token_ids": [], "cached_tokens": -1}]',
         '[{"id": "a", "token_ids": [], "logprobs": {"content": []}}]', '[{"id": "\\ud800", "token_ids": [true]}]'],
    )  # fmt: skip
    def test_a_message_that_makes_no_sense(self, text: str) -> None:
        from pdd_engine.renderer import wire  # noqa: PLC0415

        with pytest.raises(wire.MessageError, match="expected a list of outputs"):
            wire.outputs(text)

    def test_how_much_of_the_prompt_the_prefill_engine_had(self, renderer: Any, tools: Any) -> None:
        for path, body in ((CHAT, {"messages": MESSAGES}), (COMPLETE, {"prompt": "Hi"})):
            for streams in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
                asked = renderer.ask(path, lambda add: [tools.record(add, [100, 200])], body | streams)
                usage = asked.events[-1]["usage"] if streams else asked.json["usage"]
                assert usage["prompt_tokens_details"]["cached_tokens"] == 32
                assert usage["completion_tokens"] == 2


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """vLLM's loggers do not hand their records up."""
    vllm = logging.getLogger("vllm")
    vllm.addHandler(caplog.handler)
    with caplog.at_level(logging.DEBUG, logger="vllm"):
        yield caplog
    vllm.removeHandler(caplog.handler)


def test_no_log_has_what_was_asked_or_answered(renderer: Any, tools: Any, log: Any) -> None:
    token_ids = renderer.ids("classified")

    def fails(add: dict[str, Any]) -> Any:
        return [[*tools.record(add, token_ids)[:-1], {"token_ids": [], "finish_reason": "error"}]]

    for streams in (False, True):
        for play in (fails, lambda add: [tools.record(add, token_ids)]):
            for body in ({}, {"kv_transfer_params": {"a": 1}}, {"n": 2, "temperature": 0}, {"stop": ["sif"]}):
                renderer.chat(play, messages=[{"role": "user", "content": "secret"}], stream=streams, **body)
                renderer.complete(play, prompt="secret", stream=streams, **body)
    assert "internal error during generation" in log.text
    for text in ("secret", "classified", str(renderer.ids("secret")[0])):
        assert text not in log.text


def test_facts(renderer: Any, monkeypatch: Any) -> None:
    import httpx  # noqa: PLC0415

    async def get(path: str) -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(renderer.app), base_url="http://renderer") as client:
            return await client.get(path)

    facts = renderer.run(get("/pdd/v1/facts")).json()
    assert facts.pop("tokenizer_fingerprint")
    assert facts == {
        "role": "", "model": str(renderer.model), "revision": "", "served_model_name": "assistant",
        "vllm_version": "0.32.0", "max_model_len": 2048, "adapters_fingerprint": "",
    }  # fmt: skip
    assert renderer.run(get("/health")).status_code == 200
    models = renderer.run(get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["assistant"]
