"""Locks that end with the process that holds them, however it ends (flock).

A lock tells whether a job's runner lives. It is tied to the open file: a child that inherits the
descriptor keeps the lock, which is how a job's hosts keep the next run waiting until they have gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from fray.cluster.local.store import JobFolder, state_errors
from fray.errors import JobRunningError, StateDirectoryError

__all__ = ["JobLocks", "is_locked", "read_holder"]

READERS_SECONDS = 30.0
"""Readers share a lock for microseconds to see whether it is free; a runner tries again that long."""
HOSTS_SECONDS = 20.0
"""Hosts of a runner that died have 5 s to end before they are killed."""
PAUSE_SECONDS = 0.02


class JobLocks:
    """Both locks of a job, held by its runner until `release`. Hosts inherit `hosts`, a descriptor."""

    def __init__(self, path: Path, runner: int, hosts: int) -> None:
        self._path = path
        self._runner = runner
        self.hosts = hosts

    @classmethod
    def acquire(cls, folder: JobFolder, *, name: str, waiting: Callable[[], object]) -> JobLocks:
        """Take both locks of a job; `waiting` is called once if hosts of a dead runner are still ending.

        Raises:
            JobRunningError: a runner of this job lives.
            StateDirectoryError: the files can't be opened, or hosts of a dead runner don't go.
        """
        with contextlib.ExitStack() as opened:
            runner = _open(folder.runner_lock)
            opened.callback(os.close, runner)
            if not _lock_beside_readers(runner, folder.runner_lock):
                raise JobRunningError(name, read_holder(folder.runner_lock) or 0)
            hosts = _open(folder.hosts_lock)
            opened.callback(os.close, hosts)
            if not _lock_within(hosts, 0, folder.hosts_lock):
                waiting()
                if not _lock_within(hosts, HOSTS_SECONDS, folder.hosts_lock):
                    problem = "processes of an earlier run don't end; kill them and try again"
                    raise StateDirectoryError(str(folder.path), problem)
            opened.pop_all()
        return cls(folder.runner_lock, runner, hosts)

    def publish(self) -> None:
        """Write this process's id into the runner's lock, for people to read."""
        with state_errors(self._path):
            os.ftruncate(self._runner, 0)
            os.pwrite(self._runner, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of both locks; the one of the hosts is free once they have ended, too."""
        os.close(self.hosts)
        os.close(self._runner)


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock of a file."""
    with state_errors(path):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
    try:
        # Shared, so that two readers don't take each other for a runner.
        return not _try_lock(file, fcntl.LOCK_SH, path)
    finally:
        os.close(file)


def read_holder(path: Path) -> int | None:
    """Return the process id that stands in a lock file; None where there is none."""
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _open(path: Path) -> int:
    with state_errors(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock_beside_readers(file: int, path: Path) -> bool:
    """Take a lock that readers may share just now; return False at once if a runner has it."""
    give_up_at = time.monotonic() + READERS_SECONDS
    while True:
        over = time.monotonic() >= give_up_at
        if _try_lock(file, fcntl.LOCK_EX, path):
            return True
        # What can be shared is held by readers only, however long the machine makes them hold it.
        if over or not _try_lock(file, fcntl.LOCK_SH, path):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(PAUSE_SECONDS)


def _lock_within(file: int, seconds: float, path: Path) -> bool:
    give_up_at = time.monotonic() + seconds
    while True:
        over = time.monotonic() >= give_up_at  # before the try: it may come late, and is the last one then
        if _try_lock(file, fcntl.LOCK_EX, path):
            return True
        if over:
            return False
        time.sleep(PAUSE_SECONDS)


def _try_lock(file: int, kind: int, path: Path) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StateDirectoryError(str(path), f"its file system has no locks ({error.strerror})") from error
    return True
