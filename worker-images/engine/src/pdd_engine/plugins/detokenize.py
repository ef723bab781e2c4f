"""`GET /pdd/v1/detokenize` on the renderer: the text of one answer, from token ids that several engines produced.

Text from two engines cannot be joined: each decodes as if the answer began with it, so a character or a stop string
across the handoff would come out wrong. Here vLLM's own incremental detokenizer, started with the original prompt,
sees the one stream of ids, and the text is what a single engine would have sent.

The messages are described in docs/design/contracts.md. A finish message may carry `stop_reason` as the engine gave
it. It tells a stop token, whose text is left out, from a stop string that the engine matched by itself.
"""

import json
import logging
from argparse import Namespace
from typing import Any

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from starlette.datastructures import State

FINISH_REASONS = (None, "stop", "length", "repetition")

logger = logging.getLogger("vllm.pdd.detokenize")


class DetokenizePlugin:
    """A vLLM endpoint plugin of the renderer."""

    name = "pdd_detokenize"
    required_tasks = ("render",)

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_websocket_route("/pdd/v1/detokenize", _serve)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        state.pdd_tokenizer = state.online_renderer.renderer.get_tokenizer()


class MessageError(ValueError):
    """A message from the client that makes no sense."""


class Answer:
    """The text of one answer. Follows vLLM's output processor (v1/engine/output_processor.py)."""

    def __init__(self, tokenizer: Any, message: dict[str, Any]) -> None:
        from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest  # noqa: PLC0415
        from vllm.v1.engine import EngineCoreRequest  # noqa: PLC0415
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer  # noqa: PLC0415

        try:
            # The type in which /render answered: the same defaults and checks.
            request = GenerateRequest.model_validate(
                {"token_ids": message.get("prompt_token_ids"), "sampling_params": message.get("sampling_params")}
            )
        except ValueError as error:
            raise MessageError(f"first message: {error}") from error
        self._detokenizer = IncrementalDetokenizer.from_new_request(
            tokenizer,
            EngineCoreRequest(
                request_id="detokenize",
                prompt_token_ids=request.token_ids,
                mm_features=None,
                sampling_params=request.sampling_params,
                pooling_params=None,
                arrival_time=0.0,
                lora_request=None,
                cache_salt=None,
                data_parallel_rank=None,
            ),
        )

    def add(self, message: dict[str, Any]) -> dict[str, Any]:
        """The text that new ids add. A finish also brings what was held back as a possible stop string."""
        token_ids, finish_reason = message.get("token_ids"), message.get("finish_reason")
        stop_reason = message.get("stop_reason")
        if not isinstance(token_ids, list) or not all(type(token) is int and token >= 0 for token in token_ids):
            raise MessageError(f"token_ids is {token_ids!r}: expected a list of token ids")
        if finish_reason not in FINISH_REASONS:
            raise MessageError(f"finish_reason is {finish_reason!r}: expected one of {FINISH_REASONS}")
        stopped_by_token = finish_reason == "stop" and not isinstance(stop_reason, str)
        if stop_string := self._detokenizer.update(token_ids, stopped_by_token):
            finish_reason, stop_reason = "stop", stop_string
        text = self._detokenizer.get_next_output_text(finished=finish_reason is not None, delta=True)
        return {"text": text, "finish_reason": finish_reason, "stop_reason": stop_reason}


async def _serve(socket: WebSocket) -> None:
    await socket.accept()
    try:
        answer = Answer(socket.app.state.pdd_tokenizer, await _receive(socket))
        finished = False
        while not finished:
            reply = answer.add(await _receive(socket))
            finished = reply["finish_reason"] is not None
            await socket.send_json(reply)
    except WebSocketDisconnect:
        return  # the client's right: its own client went away
    except MessageError as error:
        await socket.send_json({"error": str(error)})
    except Exception:
        logger.exception("detokenize failed")
        await socket.send_json({"error": "internal error of the renderer, see its log"})
    await socket.close()


async def _receive(socket: WebSocket) -> dict[str, Any]:
    text = await socket.receive_text()
    try:
        message = json.loads(text)
    except ValueError as error:
        raise MessageError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise MessageError(f"expected a JSON object, not {type(message).__name__}")
    return message
