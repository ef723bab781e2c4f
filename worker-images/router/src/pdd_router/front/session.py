"""One client request: the work that its renderer gives out, each on its way through the pipelines."""

import asyncio
from contextlib import aclosing

import orjson
import structlog

from pdd_router.engines.client import Work
from pdd_router.engines.renderers import Renderer
from pdd_router.errors import ApiError
from pdd_router.front.ask import Ask
from pdd_router.front.pipelines import Pipelines
from pdd_router.front.record import Record

_LOG = structlog.get_logger(__name__)


class Session:
    """The engine core of one client request (`engines.renderers.Core`).

    `failed` is done when the request cannot be answered, with what the client is to hear.
    """

    def __init__(self, renderer: Renderer, pipelines: Pipelines, ask: Ask, record: Record):
        self._renderer = renderer
        self._pipelines = pipelines
        self._ask = ask
        self._record = record
        self._running: dict[str, asyncio.Task[None]] = {}
        self._enough: dict[str, asyncio.Event] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()

    def add(self, work_id: str, work: Work) -> None:
        if len(self._running) >= self._ask.routing.max_requests:
            self._fail(
                ApiError(400, f"n and prompts ask for more than {self._ask.routing.max_requests} answers at once")
            )
            return
        self._record.prompt_tokens += len(work.token_ids)
        self._enough[work_id] = asyncio.Event()
        self._running[work_id] = asyncio.create_task(self._work(work_id, work), name=f"work {work_id}")

    def abort(self, work_id: str) -> None:
        """The renderer has what it needs: a stop string. A client that left shows earlier, by `close`."""
        task = self._running.get(work_id)
        if task is not None:
            self._record.finish_reason = "stop"
            self._enough[work_id].set()
            task.cancel()

    def lost(self, error: ApiError) -> None:
        self._fail(error)

    async def close(self) -> None:
        """Aborts what is left, and returns when all of it has let go of its engines."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _work(self, work_id: str, work: Work) -> None:
        try:
            first = True
            answer = self._pipelines.answer(work, self._ask, self._record, enough=self._enough[work_id])
            async with aclosing(answer) as tokens:
                async for token in tokens:
                    delta = token.delta
                    self._record.token_out()
                    self._record.finish_reason = delta.finish_reason
                    output = {
                        "id": work_id,
                        "token_ids": delta.token_ids,
                        "logprobs": delta.logprobs,
                        "finish_reason": delta.finish_reason,
                        "stop_reason": delta.stop_reason,
                    }
                    if first:
                        output["cached_tokens"] = token.prefilled.cached_tokens
                        output["prompt_logprobs"] = token.prefilled.prompt_logprobs
                        first = False
                    self._renderer.send(output)
                    if delta.finish_reason is not None:
                        self._said_all(work_id)
        except ApiError as error:
            self._fail(error)
        except orjson.JSONEncodeError:
            self._fail(ApiError(400, "a field of the request is nested too deeply to be passed on"))
        except Exception:
            _LOG.exception("request failed by a bug", request_id=self._record.request_id)
            what = f"internal error, see the router's log for {self._record.request_id}"
            self._fail(ApiError(500, what, kind="InternalServerError"))
        finally:
            self._renderer.ended(work_id)
            self._running.pop(work_id, None)
            self._enough.pop(work_id, None)

    def _said_all(self, work_id: str) -> None:
        """What it still has to do (a transfer for the session's next turn) outlives the request."""
        task = self._running.pop(work_id)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _fail(self, error: ApiError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
