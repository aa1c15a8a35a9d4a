"""The items of a generator on their way to their reader, in this process.

A `BufferedStream` is filled by a thread that pauses while enough items wait; a `LazyStream` runs the
generator when an item is asked for. Both end once: with the generator, with its exception, or from outside.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from fray.job.cells import Waitable, await_ready
from fray.job.engine import END, LATE
from fray.job.workers import blocking
from fray.payload.values.exceptions import raisable

__all__ = ["BufferedStream", "ItemStream", "LazyStream"]


class ItemStream(Waitable):
    """Items that come one after another."""

    def __init__(self, id: str = "") -> None:  # noqa: A002
        super().__init__(id)
        self._ended = False

    @abstractmethod
    def take(self, deadline: float | None) -> Any:
        """Return the next item, `END` after the last, or `LATE` if the deadline passed before.

        Raises the generator's exception after the items before it.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Nobody takes items any more: let the generator end."""

    @property
    def ended(self) -> bool:
        """Whether no further item will be made; some may wait to be taken."""
        return self._ended

    def _end(self, error: BaseException | None) -> bool:
        """End the stream; return False if it had ended. The lock is held."""
        if self._ended:
            return False
        self._ended = self.ready = True
        self._error, self._trace = error, error.__traceback__ if error else None
        return True

    def _last(self) -> Any:
        if self._error is not None:
            raise self._error.with_traceback(self._trace)
        return END


class BufferedStream(ItemStream):
    """Holds at most `bound` items that nobody has taken (None: any number)."""

    def __init__(self, bound: int | None, id: str = "") -> None:  # noqa: A002
        super().__init__(id)
        self._bound = bound
        self._items: deque[Any] = deque()
        self._space = threading.Condition(self._lock)

    def fill(self, generator: Generator[Any, Any, Any]) -> None:
        """Run the generator to its end, which is not yet that of the stream.

        Raises what the generator raises, and `GeneratorExit` when the stream has ended before it.
        """
        with contextlib.closing(generator):
            for item in generator:
                if not self._put(item):
                    raise GeneratorExit

    def succeed(self, value: Any) -> None:  # noqa: ARG002 - a generator's own value has no reader
        """End the stream after the items that wait."""
        self._finish(None)

    def fail(self, error: BaseException) -> None:
        """End the stream with an exception after the items that wait."""
        self._finish(error)

    def abandon(self) -> None:
        """Let the generator end at its next item."""
        with self._lock:
            self._end(None)
            self._items.clear()
            self._space.notify_all()

    def take(self, deadline: float | None) -> Any:
        """Return the next item or `END`; see `ItemStream`."""
        while True:
            with self._lock:
                if self._items:
                    self._space.notify()
                    item = self._items.popleft()
                    self.ready = self._ended or bool(self._items)
                    return item
                if self._ended:
                    return self._last()
            if not await_ready((self,), deadline):
                return LATE

    def _put(self, item: Any) -> bool:
        if self._is_full():
            with blocking(), self._lock:
                while self._is_full():
                    self._space.wait()
        with self._lock:
            if self._ended:
                return False
            self._items.append(item)
            self.ready = True
        self._announce()
        return True

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            self._end(error)
            self._space.notify_all()
        self._announce()

    def _is_full(self) -> bool:
        return self._bound is not None and not self._ended and len(self._items) >= self._bound


class LazyStream(ItemStream):
    """Runs the generator in the thread that takes an item, in the context variables of its task.

    `start` makes the generator when the first item is asked for; `at_end` is called once, with the
    exception that ended it, if any. `name` is the task's.
    """

    def __init__(
        self,
        start: Callable[[], Generator[Any, Any, Any]],
        context: contextvars.Context,
        at_end: Callable[[BaseException | None], object],
        name: str,
        id: str = "",  # noqa: A002
    ) -> None:
        super().__init__(id)
        self._name = name
        self.ready = True  # the next item is made when it is asked for
        self._start = start
        self._generator: Generator[Any, Any, Any] | None = None
        self._context = context
        self._at_end = at_end

    def take(self, deadline: float | None) -> Any:  # noqa: ARG002 - the generator can't be interrupted
        """Return the next item or `END`; see `ItemStream`."""
        with self._lock:
            if self._ended:
                return self._last()
            try:
                item = self._context.run(self._advance)
            except KeyboardInterrupt as error:
                self._finish(error)
                raise
            except BaseException as error:  # noqa: BLE001 - also SystemExit is the task's own error
                failed = raisable(error, self._name)
                self._finish(failed)
                raise failed  # noqa: B904 - it is the exception itself, or has it as its cause
            if item is END:
                self._finish(None)
            return item

    def succeed(self, value: Any) -> None:  # noqa: ARG002 - a generator's own value has no reader
        """End the stream now."""
        self._stop(None)

    def fail(self, error: BaseException) -> None:
        """End the stream now, with an exception."""
        self._stop(error)

    def abandon(self) -> None:
        """Count as ended, and let go of the generator, which ends with its last reference."""
        with self._lock:
            self._finish(GeneratorExit())
            self._generator = None

    def _stop(self, error: BaseException | None) -> None:
        with self._lock:
            if self._finish(error) and self._generator is not None:
                self._generator.close()

    def _advance(self) -> Any:
        if self._generator is None:
            self._generator = self._start()
        return next(self._generator, END)

    def _finish(self, error: BaseException | None) -> bool:
        ended = self._end(error)
        if ended:
            self._at_end(error)
        return ended
