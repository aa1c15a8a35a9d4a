"""SIGTERM ends a callable as `sys.exit` would: its `finally` and `with` blocks and atexit functions run.

The first process of a container isn't ended by a signal that it has no handler for, so without this a
callable would run on until it is killed. One that installs a handler of its own replaces this.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from fray.vocabulary import EXIT_SIGNAL_BASE

__all__ = ["Termination", "exit_on_termination"]


class Termination:
    """What SIGTERM does in this process: it raises SystemExit in the main thread, until it is deferred."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._deferred = False
        self.received = False
        """Whether it came before it was deferred, and so ended what ran."""
        self.redirect: Callable[[Callable[..., None], int, FrameType | None], Any] | None = None
        """Takes the signal, with what deals with it, while what runs must not end at once."""

    def defer(self) -> None:
        """Ignore it from now on: the process is about to end, and says how."""
        self._deferred = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take the signal."""
        if self.redirect is not None:
            self.redirect(self.handle, number, frame)
            return
        if os.getpid() != self._process:
            # A fork, such as a worker of multiprocessing, which has no handler that cleans up.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not self._deferred:
            self.received = True
            raise SystemExit(EXIT_SIGNAL_BASE + number)


@contextlib.contextmanager
def exit_on_termination() -> Iterator[Termination]:
    """Let SIGTERM raise SystemExit(143), unless the process was started to ignore it; then as before."""
    termination = Termination()
    ours = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, termination.handle)
    try:
        yield termination
    finally:
        if ours and signal.getsignal(signal.SIGTERM) == termination.handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
