"""How much a driver may have submitted that hasn't ended: beyond it, threads that submit more wait.

Without a bound, a loop that submits faster than the pool works fills the driver's memory. Tasks of workers
don't wait: others may wait for them. Large arguments lie in the store, which spills to disk, and don't count
here; so do smaller ones of all clients once they are many (`machine.crowding`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["MAX_BYTES", "MAX_TASKS", "SubmitLimit"]

MAX_BYTES = 512 * 1024 * 1024
"""Bytes of the arguments of tasks that haven't ended."""
MAX_TASKS = 4_000_000
"""Tasks that haven't ended; each costs the driver about a kilobyte besides its arguments."""


class SubmitLimit:
    """Counts what was submitted and has ended; any thread may submit, the head tells what has ended.

    `on_wait` is called before a thread waits: the head then tells what has ended, now and from now on, as
    long as `has_waiters` says that somebody waits for it.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, max_tasks: int = MAX_TASKS) -> None:
        self.on_wait: Callable[[], None] = _nothing
        self.exempt: threading.Thread | None = None
        """The head's own thread, in which finalizers may submit: nobody would let it go on."""
        self._max_bytes = max_bytes
        self._max_tasks = max_tasks
        # Reentrant, since finalizers that run within may submit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._bytes = 0
        self._tasks = 0
        self._ended_bytes = 0
        self._ended_tasks = 0
        self._waiting = 0
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether nothing more is to be submitted for now."""
        return (
            self._bytes - self._ended_bytes >= self._max_bytes
            or self._tasks - self._ended_tasks >= self._max_tasks
        )

    @property
    def has_waiters(self) -> bool:
        """Whether a thread waits for tasks to end."""
        return self._waiting > 0

    def count(self, size: int) -> None:
        """Take note of a task whose arguments have `size` bytes."""
        with self._lock:  # the condition's own, which is entered faster without the condition
            self._bytes += size
            self._tasks += 1

    def wait_for_room(self) -> None:
        """Block as long as the limit is reached; returns at once in the head's thread and after `close`."""
        if threading.current_thread() is self.exempt:
            return
        with self._changed:
            self._waiting += 1
        try:
            # Outside of the lock: it takes the head's, which takes this one.
            self.on_wait()
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self.full)
        finally:
            with self._changed:
                self._waiting -= 1

    def note_ended(self, tasks: int, size: int) -> None:
        """Take note of how many tasks have ended in all, and of the bytes of their arguments."""
        with self._changed:
            self._ended_tasks = tasks
            self._ended_bytes = size
            if not self.full:
                self._changed.notify_all()

    def close(self) -> None:
        """Let all go on: the pool has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _nothing() -> None:
    pass
