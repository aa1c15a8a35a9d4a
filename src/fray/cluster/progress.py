"""From a FrayJob with its status to what users read about the job: pure, for all backends alike.

The conditions say how a job stands; its phase is for printing only.
"""

from __future__ import annotations

from typing import Final

from fray.errors import RequestError
from fray.plan.gang import GangKind, derive_gang
from fray.plan.status import derive_exit_code, find_condition, is_finished
from fray.plan.timestamps import parse_time
from fray.types import JobId, JobInfo, JobStatus, TaskStatus
from fray.vocabulary import ANNOTATION_ORIGINAL_NAME, ConditionType, Reason
from fray.wire.frayjob import FrayJob, Parent
from fray.wire.status import AttemptStatus, Condition

__all__ = ["describe_frayjob", "find_waiting", "get_original_name", "is_resumable"]

_ENDINGS: Final = {
    ConditionType.SUCCEEDED: JobStatus.SUCCEEDED,
    ConditionType.FAILED: JobStatus.FAILED,
    ConditionType.STOPPED: JobStatus.STOPPED,
}
_WAITING: Final = (ConditionType.ACCEPTED, ConditionType.SCHEDULED, ConditionType.RUNNING)


def describe_frayjob(job: FrayJob) -> JobInfo:
    """Return how a job stands, as its FrayJob tells.

    A gang starts and ends together, so its replicas stand alike, but for the one that ended it: that one
    has failed, with its own message, and its peers were stopped.
    """
    ending = _find_ending(job)
    status = _status(job, ending)
    waiting = find_waiting(job)
    condition = ending or waiting or find_condition(job.status, ConditionType.RUNNING)
    parent = job.spec.parent
    unsuccessful = status in (JobStatus.FAILED, JobStatus.STOPPED)
    return JobInfo(
        job_id=JobId(job.metadata.name),
        status=status,
        tasks=_tasks(job, status, ending),
        name=get_original_name(job),
        error_message=ending.message if unsuccessful and ending is not None else None,
        start_time=_seconds(job.status.start_time),
        end_time=_seconds(job.status.completion_time),
        reason=condition.reason if condition is not None else None,
        pending_reason=waiting.message if waiting is not None else None,
        parent=JobId(parent.name) if parent is not None else None,
        root=JobId(parent.root or parent.name) if parent is not None else None,
        exit_code=derive_exit_code(job.status) if ending is not None else None,
    )


def get_original_name(job: FrayJob) -> str:
    """Return what the job's author called it; objects can't have every name, nor two the same."""
    return job.metadata.annotations.get(ANNOTATION_ORIGINAL_NAME, job.metadata.name)


def is_resumable(job: FrayJob, name: str, parent: Parent | None) -> bool:
    """Return whether a launch of this name, by a process of this job, may go on with a job that is there.

    A job that launches others and is tried again runs the same program a second time. Its children that still
    live must not be launched twice; those of others that have the same name aren't its own.
    """
    if parent is None or job.spec.parent is None or job.spec.parent.name != parent.name:
        return False
    ends = job.spec.stopped or is_finished(job.status) or job.metadata.deletion_timestamp is not None
    return not ends and get_original_name(job) == name


def _find_ending(job: FrayJob) -> Condition | None:
    """Succeeded, Failed or Stopped: one of them is there once the job has ended for good."""
    return next((found for kind in _ENDINGS if (found := _holds(job, kind)) is not None), None)


def _status(job: FrayJob, ending: Condition | None) -> JobStatus:
    if ending is not None:
        return _ENDINGS[ConditionType(ending.type)]
    if _holds(job, ConditionType.RUNNING):
        return JobStatus.RUNNING
    running = find_condition(job.status, ConditionType.RUNNING)
    # Processes that are being ended still run.
    stopping = running is not None and running.reason == Reason.STOPPING
    return JobStatus.RUNNING if stopping else JobStatus.PENDING


def find_waiting(job: FrayJob) -> Condition | None:
    """Return what a pending job waits for: the first condition on the way to Running that doesn't hold."""
    if _status(job, _find_ending(job)) is not JobStatus.PENDING:
        return None
    conditions = (find_condition(job.status, kind) for kind in _WAITING)
    return next((found for found in conditions if found is not None and found.status != "True"), None)


def _holds(job: FrayJob, kind: ConditionType) -> Condition | None:
    found = find_condition(job.status, kind)
    return found if found is not None and found.status == "True" else None


def _tasks(job: FrayJob, status: JobStatus, ending: Condition | None) -> tuple[TaskStatus, ...]:
    last = job.status.attempts[-1] if job.status.attempts else None
    if status is JobStatus.FAILED and last is not None and ending is not None:
        # A time limit that came between two attempts is nobody's fault.
        failed_replica = _find_failed_replica(job, last) if last.reason == ending.reason else None
        if failed_replica is not None:
            failed, stopped = TaskStatus(status, last.story), TaskStatus(JobStatus.STOPPED)
            return tuple(failed if index == failed_replica else stopped for index in range(job.spec.replicas))
    return (TaskStatus(status),) * job.spec.replicas


def _find_failed_replica(job: FrayJob, attempt: AttemptStatus) -> int | None:
    """The replica that ended an attempt, where that is known."""
    if attempt.rank is None:
        return None
    try:
        gang = derive_gang(job.spec)
    except RequestError:
        return None  # hardware that a newer version made the object for
    replica = attempt.rank // gang.hosts_per_slice if gang.kind is GangKind.TPU else attempt.rank
    return replica if replica < job.spec.replicas else None


def _seconds(time: str | None) -> float | None:
    return None if time is None else parse_time(time).timestamp()
