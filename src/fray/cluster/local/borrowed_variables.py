"""Variables of this process for as long as a thread of it plays a host: all threads see them.

Hosts that run at the same time share what they set alike; the last one to end puts back what was there.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping

__all__ = ["borrowed_variables"]

_lock = threading.Lock()
_users: dict[str, int] = {}
_before: dict[str, str | None] = {}


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
