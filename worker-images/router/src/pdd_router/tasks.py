"""What runs beside the HTTP server, for as long as it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager


@asynccontextmanager
async def running(jobs: Iterable[Awaitable[None]]) -> AsyncIterator[None]:
    """Cancels the jobs at the end. A job that fails ends the program: a router with half its parts would
    look alive and serve wrongly."""
    async with asyncio.TaskGroup() as group:
        tasks = [asyncio.ensure_future(job) for job in jobs]
        watchers = [group.create_task(_must_go_on(task)) for task in tasks]
        try:
            yield
        finally:
            for task in [*watchers, *tasks]:
                task.cancel()


async def _must_go_on(task: "asyncio.Future[None]") -> None:
    await task
    raise RuntimeError(f"{task!r} ended")
