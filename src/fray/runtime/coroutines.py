"""Threads that wait for coroutines in the loop of another thread. Whose loop that is, isn't known here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

__all__ = ["RunningCoroutine", "iterate", "serve_loop"]

_AT_END = object()


class RunningCoroutine:
    """A coroutine in the loop of another thread, from its start to its true end, also when it is cancelled.

    A future of `asyncio.run_coroutine_threadsafe` counts as cancelled before the coroutine has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._ended: Future[Any] = Future()
        # Takes the caller's context variables along.
        loop.call_soon_threadsafe(self._begin, coroutine)

    def cancel(self) -> None:
        """Let it raise CancelledError where it awaits, unless it has ended."""
        with contextlib.suppress(RuntimeError):  # the loop was closed, which has cancelled all in it
            self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> Any:
        """Return its value once it has ended. Raises what it raises."""
        return self._ended.result()

    def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._ended.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())


def serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop in this thread until it is stopped; what still runs in it then is cancelled."""
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_others())
    finally:
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def iterate(source: AsyncIterator[Any], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Any]:
    """Give the items of an asynchronous iterator to a thread; `run` runs a coroutine to its end."""
    while (item := run(_next(source))) is not _AT_END:
        yield item


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, _AT_END)
