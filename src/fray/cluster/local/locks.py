"""The locks of a job: they tell whether its runner lives, and its hosts.

Hosts inherit theirs, which is how they keep the next run waiting until they have gone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from fray.cluster.local.store import JobFolder, state_errors
from fray.errors import JobRunningError, StateDirectoryError
from fray.runtime import file_locks

__all__ = ["JobLocks", "is_locked", "read_holder"]

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
            with state_errors(folder.runner_lock):
                free = file_locks.lock_beside_readers(runner)
            if not free:
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
        return file_locks.is_locked(path)


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


def _lock_within(file: int, seconds: float, path: Path) -> bool:
    give_up_at = time.monotonic() + seconds
    while True:
        over = time.monotonic() >= give_up_at  # before the try: it may come late, and is the last one then
        with state_errors(path):
            if file_locks.try_lock(file):
                return True
        if over:
            return False
        time.sleep(PAUSE_SECONDS)
