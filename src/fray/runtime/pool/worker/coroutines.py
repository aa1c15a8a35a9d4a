"""The event loop of a worker, in a thread of its own: all coroutines of its tasks and actors run on it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from fray.runtime.coroutines import RunningCoroutine, iterate
from fray.runtime.pool.current import RunningTask

__all__ = ["CoroutineLoop"]


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

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="fray-coroutines", daemon=True).start()
            return self._loop
