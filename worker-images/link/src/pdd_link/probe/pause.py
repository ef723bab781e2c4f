"""The time between two probes."""

import asyncio
from random import uniform


async def pause(seconds: float) -> None:
    """On average: not in step with anything else that is sent at equal intervals."""
    await asyncio.sleep(seconds * uniform(0.9, 1.1))  # noqa: S311 - not a secret
