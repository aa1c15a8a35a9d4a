"""The tasks that make up a process: all of them run, or none does.

Those that write and those that only watch are kept apart, since at the end the writers must be gone
before another process may lead, while watchers may take their time. What a task does is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["PartEndedError", "Parts"]

END_SECONDS = 1.0
"""How long watchers may take to end; after that they are left to the end of the process."""


class PartEndedError(Exception):
    """A task that should have run for as long as the process ended without an error."""


class Parts:
    """Tasks that must all run on; the first that ends, ends whatever is awaited."""

    def __init__(self) -> None:
        self._writers: list[asyncio.Task[None]] = []
        self._watchers: list[asyncio.Task[None]] = []

    def add_writer(self, part: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start a task that changes something in the cluster."""
        self._writers.append(asyncio.create_task(part, name=name))

    def add_watcher(self, part: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start a task that changes nothing."""
        self._watchers.append(asyncio.create_task(part, name=name))

    async def until(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Wait for `awaited`; raises the error of a part that ended before."""
        target = asyncio.create_task(awaited)
        try:
            await asyncio.wait([target, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            self._check()
            target.result()
        finally:
            target.cancel()
            await asyncio.gather(target, return_exceptions=True)

    async def run(self) -> None:
        """Wait until a part ends; raises its error, or `PartEndedError`."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._check()

    async def end_writers(self) -> None:
        """Cancel what writes; nothing is written any more when this returns."""
        for task in self._writers:
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)

    async def end_watchers(self) -> None:
        """Cancel the others, and wait for them, but not for long."""
        for task in self._watchers:
            task.cancel()
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=END_SECONDS)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*self._writers, *self._watchers]

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
                raise PartEndedError(f"{task.get_name()} ended")
