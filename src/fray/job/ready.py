"""Refs in the order in which they become ready."""

from __future__ import annotations

import queue
from functools import partial
from typing import Any

from fray.errors import GetTimeoutError
from fray.job.engine import Engine, deadline_after, time_left
from fray.job.refs import ObjectRef

__all__ = ["ReadyRefs"]


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
