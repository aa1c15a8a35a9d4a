"""The jobs of a state directory as any shell sees them: which there are, how they stand, and how they change.

A job's file says how it stood when its runner last wrote it. If no runner holds its lock any more and
the job hasn't finished, the runner was killed, and so were its processes: that is decided here, and nowhere
written, since only runners write.

A job of this process reports each change; a job of another process has to be read again and again.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from fray.cluster.local.claims import is_locked
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.errors import JobNotFoundError
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished
from fray.plan.timestamps import format_time
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus, RetryCounts

__all__ = ["JobWatch", "StrangersJob", "derive_ended", "list_jobs", "observe_job"]

RUNNER_LOST = "the process that ran the job (`fray run`, or the program that launched it) was killed"

FIRST_PAUSE = 0.05
LAST_PAUSE = 0.25
"""Seconds between two looks at a job of another process, doubled from the first to the last."""


def list_jobs(state: StateDirectory) -> list[FrayJob]:
    """Return all jobs with their present status, sorted by name.

    Raises:
        StateDirectoryError: the directory can't be read.
    """
    found = (_observe(state.job(name)) for name in state.job_names())
    return [job for job in found if job is not None]


def observe_job(state: StateDirectory, name: str) -> FrayJob:
    """Return a job with its present status.

    Raises:
        JobNotFoundError: there is none of this name.
        StateDirectoryError: the directory can't be read.
    """
    names = state.job_names()
    job = _observe(state.job(name)) if name in names else None
    if job is None:
        known = [known for known in names if state.job(known).read() is not None]
        raise JobNotFoundError.among(name, f"state directory {state.root}", known)
    return job


def _observe(folder: JobFolder) -> FrayJob | None:
    job = folder.read()
    if job is None or is_finished(job.status) or is_locked(folder.runner_lock):
        return job
    # Read again: the runner may have finished between the two looks.
    job = folder.read()
    if job is None or is_finished(job.status):
        return job
    lost_at = datetime.fromtimestamp(folder.written_at(), UTC)
    ending = Ending(ConditionType.FAILED, Reason.RUNNER_LOST, RUNNER_LOST)
    status = derive_ended(job, ending, lost_at)
    return job.model_copy(update={"status": status})


def derive_ended(job: FrayJob, ending: Ending, now: datetime) -> FrayJobStatus:
    """Return the status of a job that ends for a reason outside its processes; its live attempt ends, too."""
    attempts = list(job.status.attempts)
    if attempts and attempts[-1].verdict is None:
        stopped = ending.type is ConditionType.STOPPED
        ended = {
            "verdict": (VerdictKind.STOPPED if stopped else VerdictKind.FAILURE).value,
            "reason": ending.reason.value,
            "message": ending.message,
            "end_time": format_time(now),
        }
        attempts[-1] = attempts[-1].model_copy(update=ended)
    counts = job.status.retries or RetryCounts(failures_used=0, preemptions_used=0)
    outlook = Outlook(Stage.FINISHED, ending=ending)
    return derive_status(job, None, attempts, counts, outlook, now)


class JobWatch(Protocol):
    """A job that is being watched, by one thread."""

    def look(self) -> tuple[FrayJob, bool]:
        """Return the job as it stands, and whether it has ended and all of its output is on disk.

        Raises:
            JobNotFoundError: it isn't there any more.
            StateDirectoryError: it can't be read.
        """
        ...

    def pause(self, seconds: float | None = None) -> None:
        """Return once something may have changed since the last look, after `seconds` at the latest."""
        ...


class StrangersJob:
    """A job that another process runs or ran."""

    def __init__(self, state: StateDirectory, name: str) -> None:
        self._state = state
        self._name = name
        self._seconds = FIRST_PAUSE
        self._seen: FrayJob | None = None

    def look(self) -> tuple[FrayJob, bool]:
        """Return the job as its files tell of it."""
        job = observe_job(self._state, self._name)
        if job != self._seen:
            self._seen, self._seconds = job, FIRST_PAUSE
        return job, is_finished(job.status)

    def pause(self, seconds: float | None = None) -> None:
        """Sleep for a while, longer each time that nothing has changed; never long."""
        del seconds
        time.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, LAST_PAUSE)
