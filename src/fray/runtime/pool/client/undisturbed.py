"""What others raise in a thread between any two of its lines waits: handlers of signals, and cancelled tasks.

A frame that is sent in part would end the connection, as would one that was read and not dealt with. To block
signals (`pthread_sigmask`) doesn't help: the kernel gives them to another thread then, and Python runs their
handlers in the main thread all the same.
"""

from __future__ import annotations

# What `signal` wraps: it makes members of enumerations of what comes and goes, which takes ten times as long.
import _signal  # type: ignore[import-not-found]
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


class Undisturbed:
    """Within the block nothing is raised in this thread from outside, except in `poll`; after it, it is."""

    __slots__ = ("_came", "_handlers", "_held", "_over", "_shield")

    def __init__(self) -> None:
        self._shield: AbstractContextManager[None] | None = None
        self._handlers: dict[int, Handler] = {}
        self._came: list[tuple[int, FrameType | None]] = []
        self._held = True
        self._over = False

    def __enter__(self) -> Undisturbed:
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
            for number, handler in self._handlers.items():
                _set_handler(number, handler)
        finally:
            self._over = True
        if self._came:
            self._handle_all()

    def poll(self, poll: select.poll, timeout: float | None) -> bool:
        """Return whether something is ready within `timeout` milliseconds; handlers run meanwhile."""
        self._held = False
        try:
            if self._came:
                self._handle_all()
            return bool(poll.poll(timeout))
        finally:
            self._held = True

    def _hold(self, handlers: tuple[Any, ...]) -> None:
        try:
            for number, handler in zip(_NUMBERS, handlers, strict=True):
                if callable(handler):
                    self._handlers[number] = handler
                    _set_handler(number, self._handle)
        except BaseException:
            self.__exit__()
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._over:  # another handler raised before this one was taken back
            self._handlers[number](number, frame)
        elif self._held:
            self._came.append((number, frame))
        else:
            self._held = True  # if it raises, what comes next waits
            self._handlers[number](number, frame)
            self._held = False

    def _handle_all(self) -> None:
        try:
            while self._came:
                number, frame = self._came.pop(0)
                self._handlers[number](number, frame)
        finally:
            if self._came:
                self._handle_all()
