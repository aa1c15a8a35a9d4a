"""One answer of the server for all who ask within some seconds.

What explains why a job waits is the same for a thousand jobs that wait at once; without this, each of them
would ask for the whole list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["SharedAnswer"]

Answer = TypeVar("Answer")


class SharedAnswer(Generic[Answer]):
    """The answer of `ask`, asked for again once it is `seconds` old; an error is passed on and not kept."""

    def __init__(self, ask: Callable[[], Awaitable[Answer]], *, seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._kept: tuple[float, Answer] | None = None
        self._lock = asyncio.Lock()

    async def get(self, *, seconds: float | None = None) -> Answer:
        """Return the answer; those who come while it is being asked for wait for that one.

        One that must not be as old as others may be is at most so many `seconds` old.
        """
        clock = asyncio.get_running_loop().time
        async with self._lock:
            most = self._seconds if seconds is None else min(seconds, self._seconds)
            if self._kept is None or clock() >= self._kept[0] + most:
                answer = await self._ask()
                self._kept = clock(), answer
            return self._kept[1]
