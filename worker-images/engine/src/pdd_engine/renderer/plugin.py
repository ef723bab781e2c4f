"""How vLLM's renderer becomes an API server: an endpoint plugin that adds its routes and what they need."""

import asyncio
import logging
import os
from argparse import Namespace
from typing import Any

from fastapi import FastAPI, Request, WebSocket
from starlette.datastructures import State

from pdd_engine.plugins.facts import adapters, known
from pdd_engine.plugins.fingerprint import adapters_fingerprint, tokenizer_fingerprint
from pdd_engine.renderer.session import PATHS, SessionMiddleware

logger = logging.getLogger("vllm.pdd.renderer")


class RendererPlugin:
    """A vLLM endpoint plugin of the renderer."""

    name = "pdd_renderer"
    required_tasks = ("render",)

    def attach_router(self, app: FastAPI) -> None:
        # Not before: every API server imports this module, and the renderer alone needs these.
        from vllm.entrypoints.openai.chat_completion import api_router as chat  # noqa: PLC0415
        from vllm.entrypoints.openai.completion import api_router as completion  # noqa: PLC0415

        before = list(app.router.routes)
        chat.attach_router(app)
        completion.attach_router(app)
        # vLLM's batches of chats come along with its chats: their prompts would each need a session.
        app.router.routes[:] = [route for route in app.routes if route in before or getattr(route, "path", "") in PATHS]
        app.add_api_websocket_route("/pdd/v1/core", _core)
        app.add_api_route("/pdd/v1/facts", _facts, methods=["GET"])
        app.add_middleware(SessionMiddleware)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        from pdd_engine.renderer.serving import init_state  # noqa: PLC0415

        await init_state(state, args)
        state.pdd_facts = await asyncio.to_thread(facts, state.vllm_config.model_config, args)


def facts(model: Any, args: Namespace) -> dict[str, object]:
    import vllm  # noqa: PLC0415

    return {
        "role": os.environ.get("PDD_ROLE", ""),
        "model": model.model,
        "revision": model.revision or "",
        "served_model_name": args.served_model_name[0] if args.served_model_name else model.model,
        "vllm_version": vllm.__version__,
        "max_model_len": model.max_model_len,
        "tokenizer_fingerprint": known(
            lambda: tokenizer_fingerprint(model.tokenizer, model.tokenizer_revision, args.download_dir)
        ),
        "adapters_fingerprint": known(lambda: adapters_fingerprint(adapters(args), args.download_dir)),
    }


async def _facts(request: Request) -> dict[str, object]:
    answer: dict[str, object] = request.app.state.pdd_facts
    return answer


async def _core(socket: WebSocket) -> None:
    from pdd_engine.renderer.channel import serve  # noqa: PLC0415

    await serve(socket)
