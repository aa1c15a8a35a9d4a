"""What others raise in a thread between any two of its lines waits: handlers of signals, and cancelled tasks.

A frame that is sent in part would end the connection, as would one that was read and not dealt with. To block
signals (`pthread_sigmask`) doesn't help: the kernel gives them to another thread then, and Python runs their
handlers in the main thread all the same.
"""

from __future__ import annotations

# What `signal` wraps: it makes members of enumerations of what comes and goes, which takes ten times as long.
import _signal  # type: ignore[import-not-found]
import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, TypeAlias

from fray.runtime.pool.current import shielded

__all__ = ["Undisturbed"]

Handler: TypeAlias = Callable[[int, FrameType | None], Any]

_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if number < signal.SIGRTMIN))
"""Those that programs have handlers for; real-time signals are for libraries that don't raise."""
_get_handler: Callable[[int], Any] = _signal.getsignal
_set_handler: Callable[[int, Any], Any] = _signal.signal


ROOM = 30
"""Calls within each other that a block makes at most."""


class _SignalCameError(Exception):
    """Ends a wait, so that the handler can run after the block."""


class Undisturbed:
    """Within the block nothing is raised in this thread from outside: handlers of signals run after it.

    A signal ends a `poll`, so that they needn't wait for long. They run as if there had been no block: they
    may wait for the pool themselves, set other handlers, and be interrupted.

    Raises `RecursionError` before the block if it would come within it.
    """

    __slots__ = ("_came", "_handlers", "_polls", "_shield", "signalled")

    def __init__(self) -> None:
        self.signalled = False
        """Whether a signal has come whose handler runs, or ran, after the block."""
        self._shield: AbstractContextManager[None] | None = None
        self._handlers: dict[int, Handler] = {}
        self._came: list[tuple[int, FrameType | None]] = []
        self._polls = False

    def __enter__(self) -> Undisturbed:
        _call_deep(ROOM)
        if threading.get_ident() != threading.main_thread().ident:
            self._shield = shielded()
            self._shield.__enter__()
            return self
        handlers = tuple(map(_get_handler, _NUMBERS))
        if any(map(callable, handlers)):
            self._hold(handlers)
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._shield is not None:
            self._shield.__exit__(*raised)
            return
        try:
            self._restore(list(self._handlers.items()))
        finally:
            if self._came:
                self._handle_all()

    def poll(self, poll: select.poll, timeout: float | None) -> bool:
        """Return whether something is ready within `timeout` milliseconds, or before a signal comes."""
        try:
            self._polls = True
            return not self.signalled and bool(poll.poll(timeout))
        except _SignalCameError:
            return False
        finally:
            self._polls = False

    def _hold(self, handlers: tuple[Any, ...]) -> None:
        _blocks.append(self)
        try:
            for number, handler in zip(_NUMBERS, handlers, strict=True):
                if callable(handler):
                    self._handlers[number] = handler
                    _set_handler(number, self._handle)
        except ValueError:  # another interpreter has the main thread, in which alone handlers run
            self._handlers.clear()
            _blocks.remove(self)
        except BaseException:
            self.__exit__()
            raise

    def _restore(self, handlers: list[tuple[int, Handler]]) -> None:
        try:
            while handlers:
                _set_handler(*handlers[-1])
                handlers.pop()
        finally:
            if handlers:  # one that was restored has raised
                self._restore(handlers)
            elif self in _blocks:
                _blocks.remove(self)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))
        self.signalled = True
        if self._polls:
            self._polls = False  # what comes next must not raise
            raise _SignalCameError

    def _handle_all(self) -> None:
        try:
            while self._came:
                number, frame = self._came.pop(0)
                self._handlers[number](number, frame)
        finally:
            if self._came:
                self._handle_all()


def _call_deep(calls: int) -> None:
    if calls:
        _call_deep(calls - 1)


_blocks: list[Undisturbed] = []
"""Those that hold the handlers of signals, the innermost last."""


def _restore_in_child() -> None:
    # Another thread may fork while the main one is in a block, which nobody leaves in the child.
    for block in reversed(_blocks[:]):
        block._restore(list(block._handlers.items()))


os.register_at_fork(after_in_child=_restore_in_child)
