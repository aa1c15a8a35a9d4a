"""Event loops in threads of their own: each async actor has one, and each async task as long as it runs.

None is shared, so that code which blocks its loop, as a `get` does, stops nothing but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from fray.runtime.coroutines import RunningCoroutine, iterate, serve_loop
from fray.runtime.pool.current import RunningTask
from fray.runtime.pool.worker.threads import start_apart

__all__ = ["CoroutineLoop", "TaskLoops"]

MOST_IDLE = 8
"""Loops kept for the next tasks."""


class CoroutineLoop:
    """Runs coroutines; the thread starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
        """Begin to run a coroutine, which must not raise; those of one thread begin in their order."""
        loop = self._running()

        def begin() -> None:
            task = loop.create_task(coroutine, context=context)
            # The loop itself refers to its tasks weakly (documentation of asyncio.create_task).
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(begin)

    def result(self, coroutine: Coroutine[Any, Any, Any], running: RunningTask) -> Any:
        """Run a coroutine in the present context and return its value; cancel it if the task is to end.

        Raises what the coroutine raises.
        """
        started = RunningCoroutine(self._running(), coroutine)
        with running.woken_by(started.cancel):
            return started.result()

    def items(self, source: AsyncIterator[Any], running: RunningTask) -> Iterator[Any]:
        """Give the items of an asynchronous generator to a thread."""
        return iterate(source, lambda step: self.result(step, running))

    def close(self) -> None:
        """Cancel what runs and end the thread; nothing may be started any more."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                loop = self._loop
                start_apart(lambda: serve_loop(loop), "fray-coroutines")
            return self._loop


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
                loop.close()
