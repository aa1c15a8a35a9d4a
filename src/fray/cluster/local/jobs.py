"""The jobs of a state directory as any shell sees them: which there are, how they stand, how to stop one.

A job's file says how it stood when its runner last wrote it. If no runner holds its lock any more and
the job hasn't finished, the runner was killed, and so were its processes: that is told here, and nowhere
written, since only runners write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from fray.cluster.local.locks import is_locked, read_holder
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.errors import JobNotFoundError, JobNotRunningError, JobStillRunningError
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished
from fray.plan.timestamps import format_time
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus, RetryCounts

__all__ = ["derive_failed", "list_jobs", "observe_job", "stop_job"]

RUNNER_LOST = "the process that ran the job (`fray run`, or the program that launched it) was killed"
STOP_POLL_SECONDS = 0.05


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


def stop_job(
    state: StateDirectory, name: str, *, timeout: float | None, sleep: Callable[[float], None] = time.sleep
) -> FrayJob:
    """Ask a job to stop and return it once it has finished; with `timeout` 0 don't wait for that.

    The request is a file that the job's runner looks for, not a signal: no process id can be mistaken.

    Args:
        state: The state directory.
        name: The job's name.
        timeout: Seconds to wait at most; None waits as long as the processes need.
        sleep: Replaced in tests.

    Raises:
        JobNotFoundError: there is none of this name.
        JobNotRunningError: it has finished already.
        JobStillRunningError: it hasn't finished within the timeout.
    """
    job = observe_job(state, name)
    if is_finished(job.status):
        raise JobNotRunningError(name, job.status.phase or "")
    folder = state.job(name)
    folder.request_stop()
    if timeout == 0:
        return job
    give_up_at = None if timeout is None else time.monotonic() + timeout
    while not is_finished(job.status):
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise JobStillRunningError(name, read_holder(folder.runner_lock) or 0)
        sleep(STOP_POLL_SECONDS)
        job = observe_job(state, name)
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
    status = derive_failed(job, Reason.RUNNER_LOST, RUNNER_LOST, lost_at)
    return job.model_copy(update={"status": status})


def derive_failed(job: FrayJob, reason: Reason, message: str, now: datetime) -> FrayJobStatus:
    """Return the status of a job that ends for a reason outside its processes; its live attempt ends, too."""
    attempts = list(job.status.attempts)
    if attempts and attempts[-1].verdict is None:
        ended = {
            "verdict": VerdictKind.FAILURE.value,
            "reason": reason.value,
            "message": message,
            "end_time": format_time(now),
        }
        attempts[-1] = attempts[-1].model_copy(update=ended)
    ending = Ending(ConditionType.FAILED, reason, message)
    counts = job.status.retries or RetryCounts(failures_used=0, preemptions_used=0)
    outlook = Outlook(Stage.FINISHED, ending=ending)
    return derive_status(job, None, attempts, counts, outlook, now)
