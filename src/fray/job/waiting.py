"""Which refs are ready: what `wait` finds and returns, and refs in the order in which they become ready.

How a thread waits is the engine's business.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from typing import Any, TypeVar

from fray.errors import GetTimeoutError
from fray.job.engine import Engine, Entry, deadline_after, time_left
from fray.job.refs import ObjectRef

__all__ = ["ReadyRefs", "find_ready", "take_out"]


T = TypeVar("T")
E = TypeVar("E", bound=Entry)

FEW = 16
"""Gaps that are closed one after the other, each at the price of moving the pointers behind it."""


def find_ready(awaited: Iterable[E], count: int) -> tuple[list[int], list[E]]:
    """Return where the first `count` ready ones stand, and what isn't ready before the last of them."""
    found: list[int] = []
    pending: list[E] = []
    for position, one in enumerate(awaited):
        if not one.ready:
            pending.append(one)
            continue
        found.append(position)
        if len(found) == count:
            break
    return found, pending


def take_out(futures: list[T], positions: Sequence[int]) -> tuple[list[T], list[T]]:
    """Return what stands at the positions, which ascend, and the others, in their order; spends `futures`.

    A loop that takes one of 100,000 at a time does this to all of them each time: touching each future is
    most of what it costs, so few are taken out of the list where they stand.
    """
    taken = [futures[position] for position in positions]
    if len(positions) <= FEW:
        for position in reversed(positions):
            del futures[position]
        return taken, futures
    stays = bytearray(b"\1") * len(futures)
    for position in positions:
        stays[position] = 0
    return taken, list(compress(futures, stays))


class ReadyRefs:
    """Gives back the refs that were added, each when it is ready."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ready: queue.SimpleQueue[ObjectRef[Any] | None] = queue.SimpleQueue()
        self._left = 0

    def add(self, ref: ObjectRef[Any]) -> None:
        """Add a ref of the engine."""
        self._left += 1
        self._engine.subscribe(ref._entry, partial(self._ready.put, ref))

    def next(self, timeout: float | None = None) -> ObjectRef[Any]:
        """Take out a ref that is ready, blocking until there is one. Raises `GetTimeoutError`."""
        deadline = deadline_after(timeout)
        while True:
            try:
                ref = self._ready.get_nowait()
            except queue.Empty:
                try:
                    with self._engine.blocking(partial(self._ready.put, None)):
                        ref = self._ready.get(timeout=time_left(deadline))
                except queue.Empty:
                    raise GetTimeoutError(f"one of {self._left} refs", timeout or 0.0) from None
            if ref is not None:  # else this thread was told to end its wait
                self._left -= 1
                return ref

    def __len__(self) -> int:
        return self._left
