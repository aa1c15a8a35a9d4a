"""When a changed status is written: news at once, replica counts after a delay.

The hosts of a gang start and end one by one, and each would be a write of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.wire.status import FrayJobStatus

__all__ = ["StatusWrite", "derive_write_time", "record_write"]

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(seconds=30)


@dataclass(frozen=True)
class StatusWrite:
    """When a job's status was written last, and when a write last changed its phase or attempt."""

    at: datetime
    phase_at: datetime


def derive_write_time(
    before: FrayJobStatus, after: FrayJobStatus, last: StatusWrite | None, *, now: datetime
) -> datetime:
    """Return the time from which `after` may replace `before`; `now` when it must not wait.

    Only replica counts, and messages of conditions that keep their reason, wait: until 1 s after the write
    that changed the phase, then 2, 4, 8 s and at most 30 s after the write before. `last` is None where this
    process has not written the status yet.
    """
    if last is None or _without_counts(before) != _without_counts(after):
        return now
    return last.at + min(LONGEST_DELAY, FIRST_DELAY + (last.at - last.phase_at))


def record_write(
    before: FrayJobStatus, after: FrayJobStatus, last: StatusWrite | None, *, now: datetime
) -> StatusWrite:
    """Return the record of a write of `after` over `before`, as `last` for the next one."""
    same = (before.phase, before.attempt) == (after.phase, after.attempt)
    return StatusWrite(now, last.phase_at if last is not None and same else now)


def _without_counts(status: FrayJobStatus) -> FrayJobStatus:
    conditions = [condition.model_copy(update={"message": ""}) for condition in status.conditions]
    workers = status.workers
    if workers is not None:
        workers = workers.model_copy(update={"replicas": 0, "ready": 0, "draining": 0})
    counts = {"replicas": None, "ready": None, "workers": workers}
    return status.model_copy(update={**counts, "conditions": conditions})
