"""Which items wait and which are leased: the state of a queue in memory, with the time given by its caller.

No clock, lock or I/O: MemoryQueue and the HTTP server put those around it. A method takes amortised
O(log n) of the items.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar

from fray.errors.queue import LeaseLostError

__all__ = ["LeaseTable"]

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    """An item with the number of its place; `until` is None while it waits."""

    place: int
    item: T
    lease_id: str | None = None
    until: float | None = None
    queued: bool = True


class LeaseTable(Generic[T]):
    """Items in order of their pushes. A returned one takes its old place, before all never handed out."""

    def __init__(self) -> None:
        self._pushed = 0
        self._held = 0
        self._entries: dict[int, _Entry[T]] = {}
        # Both heaps may name what has changed since; who takes from them looks at the entry.
        self._waiting: list[int] = []
        self._ends: list[tuple[float, str]] = []
        # The leases of held items, and the expired ones whose items nobody has taken since.
        self._leases: dict[str, _Entry[T]] = {}

    def push(self, item: T) -> None:
        """Add an item at the end."""
        self._pushed += 1
        self._entries[self._pushed] = _Entry(self._pushed, item)
        heapq.heappush(self._waiting, self._pushed)

    def peek(self, *, now: float) -> tuple[T] | None:
        """The item that `pop` would take, in a tuple since it may be None."""
        entry = self._first(now)
        return None if entry is None else (entry.item,)

    def pop(self, lease_id: str, *, until: float, now: float) -> tuple[T] | None:
        """Lease the first waiting item; None when there is none. `lease_id` must be new."""
        entry = self._first(now)
        if entry is None:
            return None
        heapq.heappop(self._waiting)
        entry.queued = False
        if entry.lease_id is not None:
            del self._leases[entry.lease_id]
        entry.lease_id = lease_id
        self._leases[lease_id] = entry
        self._hold(entry, until)
        return (entry.item,)

    def leased(self, lease_id: str) -> tuple[T] | None:
        """The item of a lease that isn't lost."""
        entry = self._leases.get(lease_id)
        return None if entry is None else (entry.item,)

    def renew(self, lease_id: str, *, until: float, now: float) -> None:
        """Move the end of a lease. Raises `LeaseLostError`."""
        self._expire(now)
        entry = self._leases.get(lease_id)
        if entry is None:
            raise LeaseLostError(lease_id)
        self._hold(entry, until)

    def done(self, lease_id: str) -> T:
        """Remove the item of a lease and return it. Raises `LeaseLostError`."""
        entry = self._end(lease_id)
        del self._entries[entry.place]
        return entry.item

    def release(self, lease_id: str) -> None:
        """Put the item of a lease back. Raises `LeaseLostError`."""
        self._wait(self._end(lease_id))

    def size(self, *, now: float) -> int:
        """How many items wait."""
        self._expire(now)
        return len(self._entries) - self._held

    def pending(self, *, now: float) -> int:
        """How many items are leased."""
        self._expire(now)
        return self._held

    def _first(self, now: float) -> _Entry[T] | None:
        self._expire(now)
        while self._waiting:
            entry = self._entries.get(self._waiting[0])
            if entry is not None and entry.until is None:
                return entry
            heapq.heappop(self._waiting)
            if entry is not None:
                entry.queued = False
        return None

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            until, lease_id = heapq.heappop(self._ends)
            entry = self._leases.get(lease_id)
            if entry is not None and entry.until == until:
                self._held -= 1
                self._wait(entry)

    def _hold(self, entry: _Entry[T], until: float) -> None:
        assert entry.lease_id is not None
        if entry.until is None:
            self._held += 1
        entry.until = until
        heapq.heappush(self._ends, (until, entry.lease_id))
        if len(self._ends) > 2 * self._held + 64:
            held = (other for other in self._leases.items() if other[1].until is not None)
            self._ends = [(other.until, lease_id) for lease_id, other in held if other.until is not None]
            heapq.heapify(self._ends)

    def _end(self, lease_id: str) -> _Entry[T]:
        entry = self._leases.pop(lease_id, None)
        if entry is None:
            raise LeaseLostError(lease_id)
        if entry.until is not None:
            self._held -= 1
        entry.lease_id = entry.until = None
        return entry

    def _wait(self, entry: _Entry[T]) -> None:
        entry.until = None
        if not entry.queued:
            entry.queued = True
            heapq.heappush(self._waiting, entry.place)
