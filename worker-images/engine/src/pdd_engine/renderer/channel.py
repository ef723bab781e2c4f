"""`GET /pdd/v1/core?channel=NAME`: the WebSocket that a router keeps open to a renderer."""

import asyncio
import logging

from starlette.websockets import WebSocket

from pdd_engine.renderer.core import Channel, RouterCore
from pdd_engine.renderer.wire import MessageError

POLICY_VIOLATION, INVALID = 1008, 1007

logger = logging.getLogger("vllm.pdd.renderer")


async def serve(socket: WebSocket) -> None:
    core: RouterCore = socket.app.state.pdd_core
    await socket.accept()
    name = socket.query_params.get("channel", "")
    if not name or "/" in name:
        await socket.close(POLICY_VIOLATION, "the parameter channel is missing, or has a slash in it")
        return
    channel = core.open(name)
    writer = asyncio.create_task(_write(socket, channel))
    try:
        await _read(socket, channel, core)
    finally:
        # First of all: from here on nothing more comes for what it was asked for.
        core.close(channel)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _read(socket: WebSocket, channel: Channel, core: RouterCore) -> None:
    try:
        while channel.is_open:
            frame = await socket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            if frame.get("text") is None:
                raise MessageError("expected a text frame")
            core.receive(channel, frame["text"])
    except MessageError as error:
        logger.error("Channel %s closes: %s", channel.name, error)
        await socket.close(INVALID, _short(str(error)))


async def _write(socket: WebSocket, channel: Channel) -> None:
    """One task for a channel, so that a router that reads slowly holds up no one else."""
    while messages := await channel.to_send():
        for message in messages:
            await socket.send_text(message)
    await socket.close(POLICY_VIOLATION, "another connection came under this name")


def _short(reason: str) -> str:
    """A close frame has room for 123 bytes."""
    return reason.encode()[:123].decode(errors="ignore")
