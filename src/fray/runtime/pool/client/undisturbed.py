"""What others raise in a thread between any two of its lines waits: Ctrl-C, SIGTERM, and cancelled tasks.

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
from fray.runtime.termination_signal import Termination

__all__ = ["Undisturbed"]

Handler: TypeAlias = Callable[[int, FrameType | None], Any]

ROOM = 30
"""Calls within each other that a block makes at most."""
_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if number < signal.SIGRTMIN))
"""Those that programs have handlers for; real-time signals are for libraries that don't raise."""
_get_handler: Callable[[int], Any] = _signal.getsignal
_set_handler: Callable[[int, Any], Any] = _signal.signal


class _SignalCameError(Exception):
    """Ends a wait, so that the handler can run after the block."""


class Undisturbed:
    """Within the block nothing is raised in this thread from outside, if it is `certain`; after it, it is.

    A signal ends a `poll`, so that its handler needn't wait for long. It runs as if there had been no block:
    it may wait for the pool itself, and be interrupted.

    Raises `RecursionError` before the block if it would come within it.
    """

    __slots__ = ("_came", "_over", "_polls", "_replaced", "_shield", "_termination", "certain", "signalled")

    def __init__(self) -> None:
        self.certain = True
        """False where the program has handlers of its own: in the main thread they may raise at any time.

        They stay as they are. To replace one for a moment would undo what a library in C has set instead,
        such as JAX, which saves what it has when SIGTERM comes."""
        self.signalled = False
        """Whether a signal has come whose handler runs, or ran, after the block."""
        self._shield: AbstractContextManager[None] | None = None
        self._replaced = False
        self._termination: Termination | None = None
        self._came: list[tuple[Handler, int, FrameType | None]] = []
        self._polls = False
        self._over = False

    def __enter__(self) -> Undisturbed:
        _call_deep(ROOM)
        if threading.get_ident() != threading.main_thread().ident:
            self._shield = shielded()
            self._shield.__enter__()
        elif not _blocks:  # else within that one
            self._hold([handler for handler in map(_get_handler, _NUMBERS) if callable(handler)])
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._shield is not None:
            self._shield.__exit__(*raised)
            return
        try:
            self._restore()
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

    def _hold(self, handlers: list[Any]) -> None:
        interrupts = signal.default_int_handler in handlers
        terminations = [
            owner
            for owner in (getattr(each, "__self__", None) for each in handlers)
            if isinstance(owner, Termination)
        ]
        if interrupts + len(terminations) < len(handlers) or len(terminations) > 1:
            self.certain = False
            return
        try:
            if interrupts:
                _set_handler(signal.SIGINT, self._handle_interrupt)
                self._replaced = True
            if terminations:
                (self._termination,) = terminations
                self._termination.redirect = self._note
            _blocks.append(self)
        except ValueError:  # another interpreter has the main thread, in which alone handlers run
            pass
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        if self._termination is not None:
            self._termination.redirect = None
        _blocks.clear()
        self._over = True
        if self._replaced:
            try:
                _set_handler(signal.SIGINT, signal.default_int_handler)
            except BaseException:  # of a signal that had come: Python runs its handler first
                _set_handler(signal.SIGINT, signal.default_int_handler)
                raise

    def _handle_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            signal.default_int_handler(number, frame)
        self._note(signal.default_int_handler, number, frame)

    def _note(self, handler: Handler, number: int, frame: FrameType | None) -> None:
        self._came.append((handler, number, frame))
        self.signalled = True
        if self._polls:
            self._polls = False  # what comes next must not raise
            raise _SignalCameError

    def _handle_all(self) -> None:
        try:
            while self._came:
                handler, number, frame = self._came.pop(0)
                handler(number, frame)
        finally:
            if self._came:
                self._handle_all()


def _call_deep(calls: int) -> None:
    if calls:
        _call_deep(calls - 1)


_blocks: list[Undisturbed] = []
"""The one that the main thread is within."""


def _restore_in_child() -> None:
    # Another thread may fork while the main one is in a block, which nobody leaves in the child.
    for block in _blocks[:]:
        block._restore()


os.register_at_fork(after_in_child=_restore_in_child)
