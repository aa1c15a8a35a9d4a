"""What every lease queue promises, and the checks of arguments that all share. No queue stands here."""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from weakref import WeakValueDictionary

from fray.errors.queue import QueueArgumentError, QueueNotSharedError
from fray.queue.table import LeaseTable

__all__ = ["DEFAULT_LEASE_SECONDS", "Lease", "MemoryQueue", "Queue", "checked_seconds"]

DEFAULT_LEASE_SECONDS = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Lease(Generic[T]):
    """An item and the right to work on it for a time.

    `timestamp` is when it was handed out, in seconds since 1970 by the clock of the one who popped it.
    """

    item: T
    lease_id: str
    timestamp: float


@runtime_checkable
class Queue(Protocol[T]):
    """First in, first out, each item at least once.

    An item that was popped is invisible until its lease ends. `done` removes it for good. `release`, or
    the end of the lease's time, puts it back before all items that were pushed after it, and so before
    all that were never handed out. A lease is lost when its item is handed out again, not before: its
    holder may still finish late as long as nobody else took the item.

    Any thread may call any method. All methods return at once, or after the storage answered.
    """

    def push(self, item: T) -> None:
        """Add an item at the end."""
        ...

    def peek(self) -> T | None:
        """Return the item that pop would hand out and leave it there; None when nothing waits."""
        ...

    def pop(self, lease_timeout: float = DEFAULT_LEASE_SECONDS) -> Lease[T] | None:
        """Hand out the first item for `lease_timeout` seconds; None when nothing waits.

        Raises:
            QueueArgumentError: the timeout isn't a positive, finite number.
        """
        ...

    def renew(self, lease: Lease[T], lease_timeout: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let the lease end `lease_timeout` seconds from now instead.

        Raises:
            LeaseLostError: the item isn't this holder's any more.
            QueueArgumentError: the timeout isn't a positive, finite number.
        """
        ...

    def done(self, lease: Lease[T]) -> None:
        """Remove the item: it never comes back.

        Raises:
            LeaseLostError: the item isn't this holder's any more.
        """
        ...

    def release(self, lease: Lease[T]) -> None:
        """Give the item back, to be handed out at once.

        Raises:
            LeaseLostError: the item isn't this holder's any more.
        """
        ...

    def size(self) -> int:
        """How many items wait to be handed out, those of expired leases included."""
        ...

    def pending(self) -> int:
        """How many items are handed out, under leases that haven't expired. Not those that wait."""
        ...


def checked_seconds(seconds: object) -> float:
    """Return a lease's length when it can be one.

    Raises:
        QueueArgumentError: it isn't a positive, finite number of seconds.
    """
    number = None if isinstance(seconds, bool) or not isinstance(seconds, int | float) else seconds
    if number is not None and math.isfinite(number) and number > 0:
        return number
    raise QueueArgumentError("lease_timeout", f"must be a positive number of seconds, not {seconds!r}")


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
