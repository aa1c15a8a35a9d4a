"""Which requests to an API server are sent again, and after which pauses.

Only those that may be carried out twice: reads, and writes that the server itself tells apart. What is never
sent again by this rule is a request that the server has judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fray.kube.errors import ApiError, ServerError, ThrottledError, UnreachableError

__all__ = ["BUSY_PAUSES", "LOST_PAUSES", "Sleep", "choose_pause", "persistently"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

BUSY_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before further tries where the server is overloaded or failed; it may ask for longer ones."""
LOST_PAUSES = (0.2, 1.0)
"""Where no answer came. Few, for mostly the address is wrong, and somebody waits to be told."""
LONGEST_PAUSE = 30.0


def choose_pause(error: ApiError, pause: float) -> float:
    """Return how long to wait after an error: as the server asks, within reason, at least `pause` seconds."""
    return min(max(pause, error.retry_after_seconds or 0.0), LONGEST_PAUSE)


async def persistently(act: Callable[[], Awaitable[T]], *, sleep: Sleep = asyncio.sleep) -> T:
    """Return what `act` returns, tried again after 429, 5xx and lost answers; raises the last `ApiError`."""
    busy, lost = iter(BUSY_PAUSES), iter(LOST_PAUSES)
    while True:
        try:
            return await act()
        except (ThrottledError, ServerError, UnreachableError) as error:
            pause = next(lost if isinstance(error, UnreachableError) else busy, None)
            if pause is None:
                raise
            await sleep(choose_pause(error, pause))
