"""Ids for jobs that are launched beside each other, and the end of those that have outlived their time.

A folder is made once, by the taker of the id, so two processes never share one. A FrayJob that somebody
wrote keeps its name: it takes the place of a job of that name that has ended.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial

from fray.cluster.local.locks import JobLocks, is_locked
from fray.cluster.local.store import JobFolder, StateDirectory, state_errors
from fray.errors import JobRunningError, StateDirectoryError
from fray.plan.names import build_object_name
from fray.plan.status import is_finished
from fray.plan.timestamps import parse_time

__all__ = ["KEPT_SECONDS", "claim_job", "remove_expired", "take_name"]

logger = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600
"""How long a launched job is kept after its end, as on a cluster."""


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
