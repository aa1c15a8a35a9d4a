"""Locks of files that end with the process that holds them, however it ends (flock).

A lock is tied to the open file, so a child that inherits the descriptor keeps it. All functions raise
`OSError` where the file system has no locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["is_locked", "lock_beside_readers", "lock_within", "try_lock"]

READERS_SECONDS: Final = 30.0
"""`is_locked` shares a lock for microseconds; who wants to hold it tries again that long."""
PAUSE_SECONDS: Final = 0.02


def is_locked(path: Path | str) -> bool:
    """Return whether some process holds the lock of a file; one that is missing is free."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two readers don't take each other for a holder.
        return not try_lock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def lock_beside_readers(file: int) -> bool:
    """Take the lock of an open file, which readers may share just now; return False if another holds it."""
    give_up_at = time.monotonic() + READERS_SECONDS
    while True:
        over = time.monotonic() >= give_up_at
        if try_lock(file):
            return True
        # What can be shared is held by readers only, however long the machine makes them hold it.
        if over or not try_lock(file, fcntl.LOCK_SH):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(PAUSE_SECONDS)


def try_lock(file: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock of an open file if it is free; return whether it was."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(file: int, seconds: float | None) -> bool:
    """Take the lock of an open file; return whether that was within so many seconds (None: wait)."""
    if seconds is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return True
    give_up_at = time.monotonic() + seconds
    while not (locked := try_lock(file)) and time.monotonic() < give_up_at:
        time.sleep(PAUSE_SECONDS)
    return locked
