"""Let one process at a time do what two must not do at once."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["hold_lock"]


@contextmanager
def hold_lock(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`, made if missing; the kernel drops it when the holder dies, however it dies.

    `on_wait` is called once when another process holds it. Raises OSError when the file can't be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
