"""The jobs of a state directory as any shell sees them: which there are and how they stand.

A job's file says how it stood when its runner last wrote it. If no runner holds its lock any more and
the job hasn't finished, the runner was killed, and so were its processes: that is decided here, and nowhere
written, since only runners write.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fray.cluster.local.locks import is_locked
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.errors import JobNotFoundError
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished
from fray.plan.timestamps import format_time
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus, RetryCounts

__all__ = ["derive_ended", "list_jobs", "observe_job"]

RUNNER_LOST = "the process that ran the job (`fray run`, or the program that launched it) was killed"


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
