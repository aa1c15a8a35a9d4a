"""What a thread prints goes where it always did, and to the listener of that thread as well.

`sys.stdout` and `sys.stderr` are replaced while somebody listens, and then put back. Threads that a
listened-to thread starts, and what extension modules print, go where they always did, and nowhere else.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

__all__ = ["routed_output"]

_listener: ContextVar[Callable[[str], object] | None] = ContextVar("fray_listener", default=None)
_lock = threading.Lock()
_replaced: dict[str, tuple[TextIO, _Tee]] = {}
_listeners = 0


class _Tee:
    """A text stream that tells the listener of the present context what is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        listener = _listener.get()
        if listener is not None:
            listener(text)
        return self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def routed_output(listener: Callable[[str], object]) -> Iterator[None]:
    """Tell `listener` what this context prints, until its end; in the thread that prints."""
    global _listeners  # noqa: PLW0603 - the streams are the process's, and so is their number
    with _lock:
        if not _listeners:
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                _replaced[name] = (stream, _Tee(stream))
                setattr(sys, name, _replaced[name][1])
        _listeners += 1
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
        with _lock:
            _listeners -= 1
            if not _listeners:
                for name, (stream, tee) in _replaced.items():
                    # Somebody else may have put theirs there since.
                    if getattr(sys, name) is tee:
                        setattr(sys, name, stream)
                _replaced.clear()
