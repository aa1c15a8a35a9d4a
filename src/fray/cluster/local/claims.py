"""Who has a job's folder: ids that are taken, locks that are held, and folders that have outlived their time.

A folder is made once, by the taker of the id, so two processes never share one. A FrayJob that somebody
wrote keeps its name: it takes the place of a job of that name that has ended.

The locks tell whether a job's runner lives, and its hosts. Hosts inherit theirs, which is how they keep the
next run waiting until they have gone.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from fray.cluster.local.store import JobFolder, StateDirectory, state_errors
from fray.errors import JobRunningError, StateDirectoryError
from fray.plan.names import build_object_name
from fray.plan.status import is_finished
from fray.plan.timestamps import parse_time
from fray.runtime import file_locks

__all__ = ["KEPT_SECONDS", "JobLocks", "claim_job", "is_locked", "read_holder", "remove_expired", "take_name"]

logger = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600
"""How long a launched job is kept after its end, as on a cluster."""

HOSTS_SECONDS = 20.0
"""Hosts of a runner that died have 5 s to end before they are killed."""
PAUSE_SECONDS = 0.02


def claim_job(state: StateDirectory, name: str) -> tuple[str, JobLocks]:
    """Return an id that no job has, and the locks of its folder, which is made: the name, or with a suffix.

    Raises:
        StateDirectoryError: the folder can't be made.
    """
    for number in itertools.count(1):
        job_id = build_object_name(name if number == 1 else f"{name}-{number}")
        folder = state.job(job_id)
        if folder.claim():
            try:
                locks = JobLocks.acquire(folder, name=job_id, waiting=lambda: None)
            except JobRunningError:
                continue  # a FrayJob of the same name, this moment
            locks.publish()
            return job_id, locks
    raise AssertionError  # there are as many names as numbers


def take_name(state: StateDirectory, name: str) -> tuple[str, JobLocks]:
    """Return a name and the locks of its folder, which is emptied of a job that has ended.

    Raises:
        JobRunningError: a job of this name lives.
        StateDirectoryError: the folder can't be made, or processes of an earlier run don't end.
    """
    folder = state.job(name)
    folder.create()
    waiting = partial(logger.info, "%s: waiting for processes of an earlier run to end", name)
    locks = JobLocks.acquire(folder, name=name, waiting=waiting)
    try:
        locks.publish()
        folder.clear()
    except BaseException:
        locks.release()
        raise
    return name, locks


def remove_expired(state: StateDirectory, now: datetime) -> None:
    """Remove launched jobs whose time is up, and what launches that were killed have left."""
    for name in state.job_names():
        folder = state.job(name)
        # Another process may remove it at the same moment; one that can't be read isn't ours to judge.
        with contextlib.suppress(StateDirectoryError, JobRunningError):
            if _is_expired(folder, now) and not is_locked(folder.hosts_lock):
                locks = JobLocks.acquire(folder, name=name, waiting=lambda: None)
                try:
                    with state_errors(folder.path):
                        shutil.rmtree(folder.path)
                finally:
                    locks.release()


def _is_expired(folder: JobFolder, now: datetime) -> bool:
    job = folder.read()
    if job is None:
        with state_errors(folder.path):
            made = datetime.fromtimestamp(folder.path.stat().st_mtime, UTC)
        return now - made > timedelta(seconds=KEPT_SECONDS)
    seconds, ended = job.spec.ttl_seconds_after_finished, job.status.completion_time
    if job.metadata.uid is None or seconds is None or ended is None or not is_finished(job.status):
        return False
    return now - parse_time(ended) > timedelta(seconds=seconds)


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
