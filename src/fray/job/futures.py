"""Values for `concurrent.futures` and asyncio: one thread of the process reads them when they are there."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["read_later"]

T = TypeVar("T")


def read_later(
    subscribe: Callable[[Callable[[object], None]], object],
    read: Callable[[], T],
    cancel: Callable[[], object],
) -> Future[T]:
    """Return a future of what `read` returns or raises.

    `subscribe` gets a function, to be called once `read` won't block; `cancel` is called if the future is
    cancelled.
    """
    future: Future[T] = Future()
    jobs = _find_jobs()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(read())
            except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the holder of the future
                future.set_exception(error)

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
            threading.Thread(target=_serve, args=(_jobs,), name="fray-futures", daemon=True).start()
        return _jobs


def _serve(jobs: queue.SimpleQueue[Any]) -> None:
    while True:
        jobs.get()()


def _forget() -> None:
    global _jobs, _lock
    _jobs, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
