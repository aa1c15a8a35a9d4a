"""An exception is raised in another thread, at its next bytecode.

`PyThreadState_SetAsyncExc` finds a thread by its identity. Before Python 3.12 a thread that is being started
bears the one of the thread that starts it: it would get the exception instead, die of it, and leave the other
waiting for its start for ever. See `thread_PyThread_start_new_thread` in
https://github.com/python/cpython/blob/v3.11.7/Modules/_threadmodule.c
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

__all__ = ["raise_in"]

START_SECONDS = 1.0
"""How long a thread may take to start before others are no longer kept waiting for it."""
PAUSE_SECONDS = 0.001

_starting: Any = vars(threading).get("_limbo", {})
_starting_lock: Any = vars(threading).get("_active_limbo_lock", threading.RLock())
"""What `threading` knows of threads that are being started, and what it changes it under."""


def raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in the thread with this identity, in place of one on its way; None: none."""
    raised = None if kind is None else ctypes.py_object(kind)
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        with _starting_lock:
            if not _starting or time.monotonic() > give_up_at:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
                return
        time.sleep(PAUSE_SECONDS)
