"""Generators that run as tasks: each item is told as soon as it's made, not too far ahead of its reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fray.runtime.pool.messages import Inline, ItemProduced, ObjectId, Stored, TaskSpec

__all__ = ["ITEM_INLINE_LIMIT", "ItemSink", "Window", "stream"]

ITEM_INLINE_LIMIT = 1024
"""Bytes up to which an item passes the head; larger ones lie in the store, so that many don't burden it."""

Waiting = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Entered while a generator waits, with what wakes it when its task is told to end."""


class Window:
    """How far a generator may go: `buffered` items beyond those that its consumer has taken.

    A run that makes items again starts with all those as taken, `skip` of them: so it never waits for a
    message that came to an earlier run.
    """

    __slots__ = ("_buffered", "_changed", "_consumed", "_open")

    def __init__(self, buffered: int, skip: int) -> None:
        self._buffered = max(buffered, 1)
        self._consumed = skip
        self._changed = threading.Condition()
        self._open = False

    def consume(self, count: int) -> None:
        """Take note that `count` items in all were taken."""
        with self._changed:
            if count > self._consumed:
                self._consumed = count
                self._changed.notify_all()

    def release(self) -> None:
        """Let the generator go on for good: it was told to end, and does so once it's awake."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait(self, index: int, waiting: Waiting) -> None:
        """Return when the item `index`, counted from 0, may be made."""
        # Without the lock: a stale value only leads to the look below.
        if index < self._consumed + self._buffered:
            return
        # Outside of the lock, since it sends a message, and `consume` must not wait for that.
        with waiting(self.release), self._changed:
            self._changed.wait_for(lambda: self._open or index < self._consumed + self._buffered)


class ItemSink(Protocol):
    """Where items go."""

    def new_id(self) -> ObjectId:
        """Return an identity for an item."""

    def keep(self, id: ObjectId, value: Any, limit: int, /) -> Inline | Stored:  # noqa: A002
        """Return an item as it is told."""

    def tell(self, item: ItemProduced) -> None:
        """Send the message."""


def stream(
    items: Iterable[Any], spec: TaskSpec, *, skip: int, window: Window, sink: ItemSink, waiting: Waiting
) -> int:
    """Run a generator to its end, telling all items but the first `skip`; return the number of all.

    Raises what the generator raises, and TypeError if `items` can't be iterated over.
    """
    iterator: Iterator[Any] = iter(items)
    index = 0
    while True:
        # Before the item is made: it may be large.
        window.wait(index, waiting)
        try:
            item = next(iterator)
        except StopIteration:
            return index
        if index >= skip:
            identity = sink.new_id()
            sink.tell(ItemProduced(spec.id, index, identity, sink.keep(identity, item, ITEM_INLINE_LIMIT)))
        del item
        index += 1
