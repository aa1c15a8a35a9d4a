"""Values for `concurrent.futures` and asyncio: one thread of the process reads them when they are there."""

from __future__ import annotations

import contextvars
import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

__all__ = ["read_later"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


def read_later(
    subscribe: Callable[[Callable[[object], None]], object],
    read: Callable[[], T],
    cancel: Callable[[], object],
    take_back: Callable[[], object],
) -> Future[T]:
    """Return a future of what `read` returns or raises.

    `subscribe` gets a function, to be called once `read` won't block; `cancel` is called if the future is
    cancelled. `take_back` is called just before the future is done, or when it would be: a future can't tell
    who waits for it, so that its task lends what it holds until then.
    """
    future: Future[T] = Future()
    jobs = _find_jobs()

    def run() -> None:
        wanted = future.set_running_or_notify_cancel()
        try:
            value = read() if wanted else None
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the holder of the future
            take_back()
            future.set_exception(error)
            return
        take_back()
        if wanted:
            future.set_result(cast("T", value))

    subscribe(lambda _: jobs.put(run))
    future.add_done_callback(lambda done: cancel() if done.cancelled() else None)
    return future


_lock = threading.Lock()
_jobs: queue.SimpleQueue[Callable[[], None]] | None = None


def _find_jobs() -> queue.SimpleQueue[Callable[[], None]]:
    """Return the queue of this process's thread; it starts when it is first needed."""
    global _jobs  # noqa: PLW0603 - one thread a process
    with _lock:
        if _jobs is None:
            _jobs = queue.SimpleQueue()
            thread = threading.Thread(target=_serve, args=(_jobs,), name="fray-futures", daemon=True)
            contextvars.Context().run(thread.start)  # it is of no task, whichever asks first
        return _jobs


def _serve(jobs: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            jobs.get()()
        except BaseException:  # noqa: BLE001 - a callback's: it may end its future's others, and no other future
            _log.exception("a callback of a future has raised what would end a thread")


def _forget() -> None:
    global _jobs, _lock
    _jobs, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
