"""The time limits of `spec.timeouts`, as moments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.observation import GangObservation
from fray.plan.timestamps import parse_time
from fray.vocabulary import Reason
from fray.wire.durations import parse_duration
from fray.wire.frayjob import Timeouts
from fray.wire.status import AttemptStatus, FrayJobStatus

__all__ = ["Deadline", "derive_attempt_deadline", "derive_total_deadline"]


@dataclass(frozen=True)
class Deadline:
    """A moment after which an attempt or a job is ended, and why; `message` is a whole clause."""

    at: datetime
    reason: Reason
    message: str


def derive_attempt_deadline(
    timeouts: Timeouts, attempt: AttemptStatus, observed: GangObservation | None
) -> Deadline | None:
    """Return the limit that an attempt is under: `pending` until all hosts run, `active` from then on.

    None limits an attempt whose hosts may not start yet: how long a queue is, is nothing that it can help.
    """
    if attempt.running_time is not None:
        if timeouts.active is None:
            return None
        at = parse_time(attempt.running_time) + timedelta(seconds=parse_duration(timeouts.active))
        return Deadline(
            at, Reason.ACTIVE_TIMEOUT, f"the hosts ran longer than spec.timeouts.active ({timeouts.active})"
        )
    if timeouts.pending is None or attempt.start_time is None or (observed is not None and observed.held):
        return None
    released_at = observed.released_at if observed is not None else None
    at = (released_at or parse_time(attempt.start_time)) + timedelta(seconds=parse_duration(timeouts.pending))
    message = f"not all hosts ran within spec.timeouts.pending ({timeouts.pending})"
    return Deadline(at, Reason.PENDING_TIMEOUT, message)


def derive_total_deadline(timeouts: Timeouts, status: FrayJobStatus) -> Deadline | None:
    """Return the limit of the whole job, which counts from its first attempt and includes every pause."""
    if timeouts.total is None or status.start_time is None:
        return None
    at = parse_time(status.start_time) + timedelta(seconds=parse_duration(timeouts.total))
    message = f"the job took longer than spec.timeouts.total ({timeouts.total})"
    return Deadline(at, Reason.TOTAL_TIMEOUT, message)
