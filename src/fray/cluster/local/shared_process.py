"""What a host that runs as a thread shares with its process: environment variables, and the printed output.

All threads see the variables. Hosts that run at the same time share what they set alike; the last one to end
puts back what was there. What a thread prints goes where it always did, and to the listener of that thread
as well: `sys.stdout` and `sys.stderr` are replaced while there is a listener. Output of threads that such a
thread starts, and of extension modules, isn't passed to the listener.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TextIO

__all__ = ["borrowed_variables", "routed_output"]

_lock = threading.Lock()
_users: dict[str, int] = {}
_before: dict[str, str | None] = {}

_listener: ContextVar[Callable[[str], object] | None] = ContextVar("fray_listener", default=None)
_replaced: dict[str, tuple[TextIO, _Tee]] = {}
_listeners = 0


@contextlib.contextmanager
def borrowed_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process until the end of the context."""
    environ = os.environ  # noqa: TID251 - it is written here, and callables read it
    with _lock:
        for name, value in variables.items():
            if not _users.get(name):
                _before[name] = environ.get(name)
            _users[name] = _users.get(name, 0) + 1
            environ[name] = value
    try:
        yield
    finally:
        with _lock:
            for name in variables:
                _users[name] -= 1
                if _users[name]:
                    continue
                del _users[name]
                before = _before.pop(name)
                if before is None:
                    environ.pop(name, None)
                else:
                    environ[name] = before


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
