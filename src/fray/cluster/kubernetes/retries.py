"""Which requests to an API server are sent again.

Only those that may be carried out twice: reads, and writes that the server itself tells apart. What is never
sent again by this rule is a request that the server has judged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fray.backoff import Backoff
from fray.kube.errors import ServerError, ThrottledError, UnreachableError

__all__ = ["BUSY", "LONGEST_ASKED", "Sleep", "persistently"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

LONGEST_ASKED: Final = 30.0
"""The longest pause, in seconds, that a server can ask for."""
BUSY: Final = Backoff(0.25, 4.0, tries=5, longest_asked=LONGEST_ASKED)
"""Where the server is overloaded or failed."""
LOST: Final = Backoff(0.4, 0.8, tries=2, longest_asked=LONGEST_ASKED)
"""Where no answer came. Few tries, because the usual cause is a wrong address and the user is waiting."""


async def persistently(act: Callable[[], Awaitable[T]], *, sleep: Sleep = asyncio.sleep) -> T:
    """Return what `act` returns, tried again after 429, 5xx and lost answers; raises the last `ApiError`."""
    failures = Counter[Backoff]()
    while True:
        try:
            return await act()
        except (ThrottledError, ServerError, UnreachableError) as error:
            backoff = LOST if isinstance(error, UnreachableError) else BUSY
            failures[backoff] += 1
            if failures[backoff] > backoff.tries:
                raise
            await sleep(backoff.pause(failures[backoff], error.retry_after_seconds))
