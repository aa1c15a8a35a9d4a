"""What a process knows of the objects that it refers to, and its threads that wait for them. Data only.

`PoolClient` writes to all of it, under its lock; others read entries.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from fray.runtime.pool.messages.specs import Failed, ObjectId, Outcome

__all__ = ["Answer", "Entry", "StreamEntry", "Waiter", "acquire"]

POLL_SECONDS = 3600.0
"""The longest single wait for a lock: `threading.TIMEOUT_MAX` is platform dependent, an hour is not."""


class Entry:
    """What this process knows of one object that it refers to. Only `PoolClient` writes to it."""

    __slots__ = ("handles", "id", "outcome", "ready", "wanted")

    def __init__(self, object_id: ObjectId, outcome: Outcome | None = None) -> None:
        self.id = object_id
        self.outcome = outcome
        self.ready = outcome is not None
        self.wanted = False
        self.handles = 1


class StreamEntry(Entry):
    """A generator's result: `ready` says that `next` won't block, `outcome` is its end."""

    __slots__ = ("acknowledged", "consumed", "items")

    def __init__(self, object_id: ObjectId) -> None:
        super().__init__(object_id)
        self.items: deque[Entry] = deque()
        self.consumed = 0
        self.acknowledged = 0
        """Of `consumed`, what the head knows."""


class Waiter:
    """One blocked thread: `lock` is released once `missing` of the objects `pending` have become ready."""

    __slots__ = ("lock", "missing", "pending")

    def __init__(self, pending: set[Entry], missing: int) -> None:
        self.pending = pending
        self.missing = missing
        self.lock = threading.Lock()
        self.lock.acquire()

    def note(self, entry: Entry) -> None:
        """Take note that an object has become ready."""
        if entry in self.pending:
            self.pending.discard(entry)
            self.missing -= 1
            if self.missing == 0:
                self.lock.release()

    def end(self) -> None:
        """Let the thread go on."""
        if self.missing > 0:
            self.missing = 0
            self.lock.release()


class Answer:
    """A thread that waits for the identity of an actor; `result` is None if the pool ends first.

    An actor that was found has its own `methods`, as its creator has written them.
    """

    __slots__ = ("arrived", "methods", "result")

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.result: Entry | Failed | None = None
        self.methods = b""


def acquire(lock: threading.Lock, timeout: float | None) -> bool:
    """Return whether the lock could be taken within `timeout` seconds; None: as long as it takes."""
    if timeout is None:
        # In pieces, so that a very long wait stays within what every platform's lock can take.
        while not lock.acquire(timeout=POLL_SECONDS):
            pass
        return True
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > POLL_SECONDS:
        if lock.acquire(timeout=POLL_SECONDS):
            return True
    return lock.acquire(timeout=max(0.0, left))
