"""The lease queue for threads of one process. Nothing of it is stored; what items refer to isn't copied."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from fray.errors.queue import QueueNotSharedError
from fray.queue.base import DEFAULT_LEASE_SECONDS, Lease, checked_seconds
from fray.queue.table import LeaseTable

__all__ = ["MemoryQueue"]

T = TypeVar("T")

_queues: WeakValueDictionary[str, MemoryQueue[Any]] = WeakValueDictionary()


class MemoryQueue(Generic[T]):
    """A `Queue` in the memory of this process; `clock` tells seconds and never goes back.

    Pickled and unpickled in its process it is the same queue. Anywhere else, in a forked child too, every
    use raises `QueueNotSharedError`: a copy would hand out the same items again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._table: LeaseTable[T] = LeaseTable()
        self._pid = os.getpid()
        self._name = uuid.uuid4().hex
        _queues[self._name] = self

    def push(self, item: T) -> None:
        """Add an item at the end; it is kept itself, not a copy."""
        table = self._own_table()
        with self._lock:
            table.push(item)

    def peek(self) -> T | None:
        """Return the item that pop would hand out and leave it there; None when nothing waits."""
        table = self._own_table()
        with self._lock:
            found = table.peek(now=self._clock())
        return None if found is None else found[0]

    def pop(self, lease_timeout: float = DEFAULT_LEASE_SECONDS) -> Lease[T] | None:
        """Hand out the first item for `lease_timeout` seconds; None when nothing waits."""
        seconds = checked_seconds(lease_timeout)
        table = self._own_table()
        lease_id = uuid.uuid4().hex
        with self._lock:
            now = self._clock()
            found = table.pop(lease_id, until=now + seconds, now=now)
        return None if found is None else Lease(found[0], lease_id, time.time())

    def renew(self, lease: Lease[T], lease_timeout: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let the lease end `lease_timeout` seconds from now instead."""
        seconds = checked_seconds(lease_timeout)
        table = self._own_table()
        with self._lock:
            now = self._clock()
            table.renew(lease.lease_id, until=now + seconds, now=now)

    def done(self, lease: Lease[T]) -> None:
        """Remove the item: it never comes back."""
        table = self._own_table()
        with self._lock:
            table.done(lease.lease_id)

    def release(self, lease: Lease[T]) -> None:
        """Give the item back, to be handed out at once."""
        table = self._own_table()
        with self._lock:
            table.release(lease.lease_id)

    def size(self) -> int:
        """How many items wait to be handed out, those of expired leases included."""
        table = self._own_table()
        with self._lock:
            return table.size(now=self._clock())

    def pending(self) -> int:
        """How many items are handed out, under leases that haven't expired."""
        table = self._own_table()
        with self._lock:
            return table.pending(now=self._clock())

    def _own_table(self) -> LeaseTable[T]:
        # Before the lock is taken: in a forked child a thread that doesn't exist there may hold it.
        if os.getpid() != self._pid:
            raise QueueNotSharedError(self._pid)
        return self._table

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self._name, self._pid)


def _find(name: str, pid: int) -> MemoryQueue[Any]:
    queue = _queues.get(name)
    if queue is None or pid != os.getpid():
        raise QueueNotSharedError(pid)
    return queue
