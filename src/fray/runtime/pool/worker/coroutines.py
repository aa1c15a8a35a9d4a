"""Event loops of async code: each async actor has one, and each async task as long as it runs.

None is shared, so that code which blocks its loop, as a `get` does, stops nothing but itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from fray.runtime.loop_thread import LoopThread, iterate
from fray.runtime.pool.current import RunningTask
from fray.runtime.pool.worker.forks import ForkGuard

__all__ = ["CoroutineLoop", "TaskLoops"]

MOST_IDLE = 8
"""Loops kept for the next tasks."""


class CoroutineLoop(LoopThread):
    """Runs coroutines of tasks and actors."""

    def __init__(self) -> None:
        super().__init__("fray-coroutines")

    def result(self, coroutine: Coroutine[Any, Any, Any], running: RunningTask) -> Any:
        """Run a coroutine in the present context and return its value; cancel it if the task is to end.

        Raises what the coroutine raises.
        """
        started = self.start(_guard(coroutine))
        with running.woken_by(started.cancel):
            return started.result(own=True)

    def items(self, source: AsyncIterator[Any], running: RunningTask) -> Iterator[Any]:
        """Give the items of an asynchronous generator to a thread."""
        return iterate(source, lambda step: self.result(step, running))


async def _guard(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine; a child that it forks has no business on this loop, which is its parent's."""
    with ForkGuard():
        return await coroutine


class TaskLoops:
    """Lends loops to tasks; all threads may use it."""

    def __init__(self) -> None:
        self._idle: list[CoroutineLoop] = []

    @contextlib.contextmanager
    def lend(self) -> Iterator[CoroutineLoop]:
        """Give a loop that nobody else uses within the block."""
        try:
            loop = self._idle.pop()
        except IndexError:
            loop = CoroutineLoop()
        try:
            yield loop
        finally:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(loop)
            else:
                loop.close(wait=False)
