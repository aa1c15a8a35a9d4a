"""Generators that run as tasks: each item is sent as soon as it's made, not too far ahead of its reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fray.runtime.pool.messages.events import ItemsProduced
from fray.runtime.pool.messages.specs import ObjectId, Stored, TaskSpec, Value, inline_size

__all__ = ["ITEM_INLINE_LIMIT", "ItemSink", "Window", "stream"]

ITEM_INLINE_LIMIT = 1024
"""Bytes up to which an item passes the head; larger ones lie in the store, so that many don't burden it."""

SMALL_ITEMS = 64
"""How many times as many items a generator may be ahead, as long as all of them are small ..."""
SMALL_BYTES = 256 * 1024
"""... and take no more than that together."""

RESUME_SHARE = 2
"""A generator that waits goes on when one of so many parts of its window is left: each wait costs much."""

ANY_NUMBER = 2**62

Waiting = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Entered while a generator waits, with what wakes it when its task is asked to end."""


class Window:
    """How far a generator may go: `buffered` items beyond those that its consumer has taken; more small ones.

    A run that makes items again starts with all those as taken, `skip` of them: so it never waits for a
    message that came to an earlier run.
    """

    __slots__ = ("_buffered", "_changed", "_consumed", "_open", "_sent_bytes", "_sizes", "_taken_bytes")

    def __init__(self, buffered: int, skip: int) -> None:
        self._buffered = max(buffered, 1)
        self._consumed = skip
        self._sizes: deque[int] = deque()
        """Of the items that were sent and not taken."""
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._changed = threading.Condition()
        self._open = False

    def consume(self, count: int) -> None:
        """Take note that `count` items in all were taken."""
        with self._changed:
            if count > self._consumed:
                for _ in range(min(count - self._consumed, len(self._sizes))):
                    self._taken_bytes += self._sizes.popleft()
                self._consumed = count
                self._changed.notify_all()

    def release(self) -> None:
        """Let the generator go on for good: it was asked to end, and does so once it's awake."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def unbound(self) -> None:
        """Let the generator go ahead by any number: others wait for its end."""
        with self._changed:
            self._buffered = ANY_NUMBER
            self._changed.notify_all()

    def note(self, size: int) -> None:
        """Take note of an item that is about to be sent, with its bytes."""
        # Without the lock: nobody else writes to these, and nobody takes an item before it was sent.
        self._sent_bytes += size
        self._sizes.append(size)

    def _has_room(self, index: int, share: int = 1) -> bool:
        ahead = index - self._consumed
        return ahead < self._buffered or (
            ahead * share < self._buffered * SMALL_ITEMS
            and (self._sent_bytes - self._taken_bytes) * share < SMALL_BYTES
        )

    def wait(self, index: int, waiting: Waiting) -> None:
        """Return when the item `index`, counted from 0, may be made."""
        # Without the lock: a stale value only leads to the look below.
        if self._has_room(index):
            return
        # Outside of the lock, since it sends a message, and `consume` must not wait for that.
        with waiting(self.release), self._changed:
            self._changed.wait_for(lambda: self._open or self._has_room(index, RESUME_SHARE))


class ItemSink(Protocol):
    """Where items go."""

    def new_id(self) -> ObjectId:
        """Return an identity for an item."""

    def keep(self, id: ObjectId, value: Any, limit: int, /) -> Value:  # noqa: A002
        """Return an item as it is sent."""

    def tell(self, item: ItemsProduced) -> None:
        """Send the message, with others that follow closely."""

    def flush(self) -> None:
        """Send what was deferred."""


def stream(
    items: Iterable[Any], spec: TaskSpec, *, skip: int, window: Window, sink: ItemSink, waiting: Waiting
) -> int:
    """Run a generator to its end, telling all items but the first `skip`; return the number of all.

    Raises what the generator raises, and TypeError if `items` can't be iterated over.
    """
    iterator: Iterator[Any] = iter(items)
    waiting = _flushing(sink, waiting)
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
            kept = sink.keep(identity, item, ITEM_INLINE_LIMIT)
            window.note(SMALL_BYTES if isinstance(kept, Stored) else inline_size(kept))
            sink.tell(ItemsProduced(spec.id, index, ((identity, kept),)))
        del item
        index += 1


def _flushing(sink: ItemSink, waiting: Waiting) -> Waiting:
    def wait(wake: Callable[[], None]) -> AbstractContextManager[object]:
        sink.flush()
        return waiting(wake)

    return wait
