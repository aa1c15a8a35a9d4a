"""What every lease queue promises, and the checks of arguments that all share. No queue stands here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fray.errors.queue import QueueArgumentError

__all__ = ["DEFAULT_LEASE_SECONDS", "Lease", "Queue", "checked_seconds"]

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


def __getattr__(name: str) -> Any:
    # Where older programs import it from.
    if name == "MemoryQueue":
        return getattr(import_module("fray.queue.memory"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
