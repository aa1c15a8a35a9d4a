"""What is left of attempts and jobs that have ended, and for how long.

The last attempts of a job keep their JobSets, for the logs of their pods, and a finished job with a
`ttlSecondsAfterFinished` is deleted when its time has come. Nothing is polled: a job that has finished is
looked at once, then when its time comes, and when it is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError
from fray.plan.pod_observation import is_ending
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.informer import JobKey
from fray_operator.jobs import JobStore
from fray_operator.observe import Observer
from fray_operator.ownership import is_jobset_of, is_owned, read_attempt_label

__all__ = ["KEPT_JOBSETS", "Retention", "find_expendable"]

logger = logging.getLogger(__name__)

KEPT_JOBSETS = 3
"""Attempts whose JobSets stay, the current one among them."""
EARLY_SECONDS = 0.02
"""How much a timer may fire too early."""
ORDER_SECONDS = 1.0
"""How long a finished job is kept at least: changes of two jobs are told within it, though in no order."""
FORBIDDEN_SECONDS = 600.0
"""When a deletion is tried again that the operator hasn't the right to."""


def find_expendable(job: FrayJob, jobsets: Iterable[Manifest]) -> list[Manifest]:
    """Return which of these JobSets are the job's and too old to be kept.

    The status may remember more attempts than keep a JobSet, or fewer: what counts is the number. A JobSet
    without a readable one stays, and so does one whose name is that of an attempt that keeps it.
    """
    if not job.status.attempts:
        return []
    current = max(attempt.number for attempt in job.status.attempts)
    kept = range(max(1, current - KEPT_JOBSETS + 1), current + 1)
    recorded = {attempt.job_set for attempt in job.status.attempts if attempt.number in kept}
    return [
        jobset
        for jobset in jobsets
        if is_owned(jobset, job)
        and not is_ending(jobset)
        and 0 < read_attempt_label(jobset) < kept.start
        and jobset["metadata"]["name"] not in recorded
        and not any(is_jobset_of(jobset, job, number) for number in kept)
    ]


class Retention:
    """Deletes what is too old to be kept."""

    def __init__(self, jobs: JobStore, observer: Observer, actor: Actor) -> None:
        self._jobs, self._observer, self._actor = jobs, observer, actor
        self._removed: dict[JobKey, set[str]] = {}

    async def remove_old_attempts(self, key: JobKey, job: FrayJob) -> None:
        """Delete the JobSets of all but the last attempts of a job; each once, for the cache is behind."""
        for jobset in find_expendable(job, self._observer.list_children(key)):
            uid = jobset["metadata"]["uid"]
            removed = self._removed.setdefault(key, set())
            if uid not in removed:
                await self._actor.delete_child(jobset)
                removed.add(uid)
        if is_finished(job.status):
            self._removed.pop(key, None)

    async def expire(self, key: JobKey, *, now: datetime) -> float | None:
        """Delete a finished job whose time has come; return seconds after which to look again, if any.

        It is kept while jobs that it launched haven't finished: those end with it.
        """
        self._removed.pop(key, None)
        finished = self._jobs.get_finished(key)
        if finished is None:
            return None
        left = (finished.expires_at - now).total_seconds()
        if not finished.looked_at:
            finished.looked_at = True
            left = max(left, ORDER_SECONDS)
        if left > 0:
            return left + EARLY_SECONDS
        # Its children must be known.
        await self._jobs.complete.wait()
        if self._jobs.get_finished(key) is not finished or self._jobs.has_children(key):
            return None  # there will be an event
        try:
            await self._actor.delete_job(key, uid=finished.uid, version=finished.version)
        except ForbiddenError as error:
            logger.warning("the job's time has come, and it can't be deleted: %s", error)
            return FORBIDDEN_SECONDS
        logger.info("deleted: spec.ttlSecondsAfterFinished is over")
        self._jobs.forget_finished(key, uid=finished.uid)
        return None
