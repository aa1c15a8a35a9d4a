"""What is left of attempts and objects that have ended, and for how long.

The last attempts of a job keep their JobSets, for the logs of their pods, and a finished object with a
`ttlSecondsAfterFinished` is deleted when its time has come. Nothing is polled: one that has finished is
looked at once, then when its time comes, and when it is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError
from fray.plan.ownership import read_attempt_label
from fray.plan.pod_observation import is_ending
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.list_watch import Place
from fray_operator.observe import Observer
from fray_operator.ownership import is_jobset_of, is_owned
from fray_operator.store import Store
from fray_operator.writer import Writer

__all__ = ["KEPT_JOBSETS", "Expiry", "OldAttempts", "find_expendable"]

logger = logging.getLogger(__name__)

KEPT_JOBSETS = 3
"""Attempts whose JobSets stay, the current one among them."""
EARLY_SECONDS = 0.02
"""How much a timer may fire too early."""
ORDER_SECONDS = 1.0
"""How long a finished object is kept at least: changes of two are seen within it, though in no order."""
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


class OldAttempts:
    """Deletes the JobSets of attempts that are too old to be kept."""

    def __init__(self, observer: Observer, actor: Actor) -> None:
        self._observer, self._actor = observer, actor
        self._removed: dict[Place, set[str]] = {}

    async def remove(self, key: Place, job: FrayJob) -> None:
        """Delete the JobSets of all but the last attempts of a job; each once, for the cache is behind."""
        for jobset in find_expendable(job, self._observer.list_children(key)):
            uid = jobset["metadata"]["uid"]
            removed = self._removed.setdefault(key, set())
            if uid not in removed:
                await self._actor.delete_child(jobset)
                removed.add(uid)
        if is_finished(job.status):
            self._removed.pop(key, None)

    def forget(self, key: Place) -> None:
        """Drop what is remembered of a job that has ended."""
        self._removed.pop(key, None)


class Expiry:
    """Deletes the finished objects of a kind when their time has come."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store, self._writer = store, writer

    async def expire(self, place: Place, *, now: datetime) -> float | None:
        """Delete a finished object whose time has come; return seconds after which to look again, if any.

        It is kept while those that it launched haven't finished: those end with it.
        """
        finished = self._store.get_finished(place)
        if finished is None:
            return None
        left = (finished.expires_at - now).total_seconds()
        if not finished.looked_at:
            finished.looked_at = True
            left = max(left, ORDER_SECONDS)
        if left > 0:
            return left + EARLY_SECONDS
        # Its children must be known.
        await self._store.complete.wait()
        if self._store.get_finished(place) is not finished or self._store.has_children(place):
            return None  # there will be an event
        try:
            await self._writer.delete(place, uid=finished.uid, version=finished.version)
        except ForbiddenError as error:
            logger.warning("its time has come, and it can't be deleted: %s", error)
            return FORBIDDEN_SECONDS
        logger.info("deleted: spec.ttlSecondsAfterFinished is over")
        self._store.forget_finished(place, uid=finished.uid)
        return None
