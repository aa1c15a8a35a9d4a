"""Values that come later, in this process: a cell is settled once, by the first that tries.

Listeners are called once each, outside all locks. Nothing here knows tasks or refs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from fray.job.engine import LATE, EngineBase
from fray.job.workers import blocking, lend

__all__ = ["Cell", "Waitable", "WaitableEngine", "await_ready", "when_ready"]


class Waitable(ABC):
    """Becomes ready at some moment: `ready` says whether taking the value would not block."""

    def __init__(self, id: str = "") -> None:  # noqa: A002
        self.id = id
        self.ready = False
        # Reentrant: the garbage collector may abandon a stream inside any of the sections it guards.
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Waitable], None]] = []
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None

    @property
    def error(self) -> BaseException | None:
        """The exception with which it has ended, if it has ended with one."""
        return self._error

    @abstractmethod
    def succeed(self, value: Any) -> object:
        """End with a value, unless it has ended."""

    @abstractmethod
    def fail(self, error: BaseException) -> object:
        """End with an exception, unless it has ended."""

    def subscribe(self, listener: Callable[[Waitable], None]) -> None:
        """Call `listener` once with this, as soon as this is ready."""
        with self._lock:
            if not self.ready:
                self._listeners.append(listener)
                return
        listener(self)

    def unsubscribe(self, listener: Callable[[Waitable], None]) -> None:
        """Forget one subscription of `listener`, if it wasn't called yet."""
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def _announce(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)


class WaitableEngine(EngineBase):
    """The part of an engine whose entries are waitables of this process; see `Engine`."""

    def subscribe(self, entries: Sequence[Any], listener: Callable[[Any], None]) -> None:
        """Call `listener` with each entry once it is ready. Values aren't brought here."""
        for entry in entries:
            entry.subscribe(listener)

    def unsubscribe(self, entries: Iterable[Any], listener: Callable[[Any], None]) -> None:
        """Forget the listener, where it wasn't called yet."""
        for entry in entries:
            entry.unsubscribe(listener)

    def blocking(
        self,
        wake: Callable[[], None],  # noqa: ARG002
        deadline: float | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[object]:
        """Lend the slot of this thread's task."""
        return blocking()

    def lend(self) -> Callable[[], None]:
        """Lend the slot of this thread's task until the returned function is called."""
        return lend()


class Cell(Waitable):
    """A value or an exception, once it is settled."""

    def __init__(self, id: str = "") -> None:  # noqa: A002
        super().__init__(id)
        self._value: Any = None

    @classmethod
    def of(cls, value: Any, id: str = "") -> Cell:  # noqa: A002
        """Return a cell that holds `value` from the start."""
        cell = cls(id)
        cell.succeed(value)
        return cell

    def succeed(self, value: Any) -> bool:
        """Settle it with a value; return False if it was settled before."""
        return self._settle(value, None)

    def fail(self, error: BaseException) -> bool:
        """Settle it with an exception; return False if it was settled before."""
        return self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        with self._lock:
            if self.ready:
                return False
            self._value, self._error = value, error
            self._trace = error.__traceback__ if error else None
            self.ready = True
        self._announce()
        return True

    def take(self, deadline: float | None) -> Any:
        """Return the value, or raise the exception, once it is there; `LATE` after the deadline."""
        if not self.ready and not await_ready((self,), deadline):
            return LATE
        if self._error is not None:
            # Each raise adds its frames to the exception, which is shared: start from where it came from.
            raise self._error.with_traceback(self._trace)
        return self._value


def await_ready(waitables: Sequence[Waitable], deadline: float | None) -> bool:
    """Block until all are ready; return False if the deadline passed before."""
    if not waitables:
        return True
    latch = _Latch(len(waitables))
    for waitable in waitables:
        waitable.subscribe(latch.count_down)
    try:
        with blocking():
            return latch.wait(deadline) or all(waitable.ready for waitable in waitables)
    finally:
        for waitable in waitables:
            waitable.unsubscribe(latch.count_down)


def when_ready(waitables: Sequence[Waitable], action: Callable[[], None]) -> None:
    """Call `action` once all of them have been ready; at once if they are."""
    latch = _Latch(len(waitables), action)
    for waitable in waitables:
        waitable.subscribe(latch.count_down)
    if not waitables:
        action()


class _Latch:
    """Opens after a number of signals."""

    def __init__(self, count: int, action: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._left = count
        self._action = action
        self._opened = threading.Event()

    def count_down(self, _waitable: Waitable) -> None:
        with self._lock:
            self._left -= 1
            opens = self._left == 0
        if opens:
            self._opened.set()
            if self._action is not None:
                self._action()

    def wait(self, deadline: float | None) -> bool:
        return self._opened.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
