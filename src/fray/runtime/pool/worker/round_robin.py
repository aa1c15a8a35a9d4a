"""The tasks that wait in a worker: callers take turns, so that none waits behind a crowd of another's."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["RoundRobin"]

Item = TypeVar("Item")


class RoundRobin(Generic[Item]):
    """A queue of items with identities: each `take` serves the caller whose turn it is, in constant time."""

    __slots__ = ("_callers", "_items", "_order")

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        """By identity, in the order of their arrival."""
        self._callers: dict[Hashable, deque[int]] = {}
        """Identities by caller; those that aren't in `_items` any more are passed over."""
        self._order: deque[Hashable] = deque()
        """Each caller of `_callers` once, the one whose turn it is first."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, id: int, caller: Hashable, item: Item) -> None:  # noqa: A002
        """Let `item` wait for a turn of `caller`, behind its others."""
        self._items[id] = item
        queue = self._callers.get(caller)
        if queue is None:
            self._callers[caller] = deque((id,))
            self._order.append(caller)
        else:
            queue.append(id)

    def take(self) -> Item | None:
        """Remove and return the next item, or None if nothing waits; then it's the next caller's turn."""
        while self._order:
            caller = self._order.popleft()
            queue = self._callers[caller]
            item = None
            while queue and item is None:
                item = self._items.pop(queue.popleft(), None)
            if queue:
                self._order.append(caller)
            else:
                del self._callers[caller]
            if item is not None:
                return item
        return None

    def remove(self, id: int) -> Item | None:  # noqa: A002
        """Remove and return the item of that identity, if it waits."""
        return self._items.pop(id, None)

    def take_last(self, count: int) -> list[int]:
        """Remove up to `count` items, the last that came first; return their identities."""
        return [self._items.popitem()[0] for _ in range(min(count, len(self._items)))]
