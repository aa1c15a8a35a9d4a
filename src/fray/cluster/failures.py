"""How the ends of jobs become the errors of those who wait for them, with the exceptions that caused them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fray.errors import (
    JobError,
    JobFailedError,
    JobNotFoundError,
    JobsFailedError,
    JobStoppedError,
    OutcomeUnreadableError,
    SurroundingsError,
)
from fray.payload.outcome import Outcome
from fray.types import JobId, JobInfo, JobStatus
from fray.vocabulary import EXIT_FAILURE, Reason

__all__ = ["ReadOutcome", "raise_failures", "raise_first_failure"]

ReadOutcome = Callable[[JobId], Outcome | None]
"""Reads what a job's callable returned or raised, as `Cluster.outcome` does."""


def raise_first_failure(infos: Sequence[JobInfo], read_outcome: ReadOutcome) -> None:
    """Raise the error of the first job that has failed or was stopped, if one has."""
    bad = (info for info in infos if info.status in (JobStatus.FAILED, JobStatus.STOPPED))
    if (first := next(bad, None)) is not None:
        raise _build_error(first) from _find_cause(first.job_id, read_outcome)


def raise_failures(infos: Sequence[JobInfo], read_outcome: ReadOutcome) -> None:
    """Raise one error for all jobs that haven't succeeded, if there are any."""
    bad = {info.job_id: info for info in infos if info.status is not JobStatus.SUCCEEDED}
    failures = tuple(_build_error(info) for info in bad.values())
    if not failures:
        return
    cause = next(filter(None, (_find_cause(job_id, read_outcome) for job_id in bad)), None)
    if len(failures) == 1:
        raise failures[0] from cause
    raise JobsFailedError(tuple((each.name, each.explanation) for each in failures)) from cause


def _find_cause(job_id: JobId, read_outcome: ReadOutcome) -> BaseException | None:
    try:
        outcome = read_outcome(job_id)
    except (JobNotFoundError, OutcomeUnreadableError, SurroundingsError) as error:
        return error  # that a job has failed is known all the same
    return None if outcome is None else outcome.error


def _build_error(info: JobInfo) -> JobError:
    kind = JobStoppedError if info.status is JobStatus.STOPPED else JobFailedError
    reason = info.reason or (Reason.STOP_REQUESTED if kind is JobStoppedError else Reason.NON_ZERO_EXIT)
    explanation = info.error_message or "nothing tells why"
    return kind(info.job_id, reason, explanation, info.exit_code or EXIT_FAILURE)
