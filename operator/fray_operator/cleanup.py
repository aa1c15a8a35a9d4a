"""What goes because something else has ended: what earlier attempts had, child jobs, finished objects.

The last attempts of a job keep their JobSets and Jobs, for the logs of their pods; an obsolete one is
deleted: one that still runs although its attempt has a verdict or its job has ended. Jobs that other jobs
launched end with them: what counts as the parent's end is `fray.plan.raw_jobs`'s to say. A finished object
with a `ttlSecondsAfterFinished` is deleted when its time has come. Nothing is polled: one that has finished
is looked at once, then when its time comes, and when it is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, NotFoundError, RefusedError
from fray.plan.children import ROLES, read_role
from fray.plan.manifests import read_attempt_label
from fray.plan.pod_observation import is_ending
from fray.plan.raw_jobs import ParentState, derive_parents_end, get_parent_name, read_parent
from fray.plan.status import is_finished
from fray.vocabulary import LABEL_ATTEMPT
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.informer import JobKey
from fray_operator.list_watch import Place, place_of
from fray_operator.observe import Observer
from fray_operator.ownership import find_obsolete, is_child_of, is_owned, may_be_obsolete
from fray_operator.store import Store
from fray_operator.writer import Writer

__all__ = [
    "KEPT_ATTEMPTS",
    "UNKNOWN_JOB_SECONDS",
    "Expiry",
    "ObsoleteChildren",
    "OldAttempts",
    "OwnerCascade",
    "find_expendable",
]

logger = logging.getLogger(__name__)

KEPT_ATTEMPTS = 3
"""Attempts whose children stay, the current one among them."""
EARLY_SECONDS = 0.02
"""How much a timer may fire too early."""
ORDER_SECONDS = 1.0
"""How long a finished object is kept at least: changes of two are seen within it, though in no order."""
FORBIDDEN_SECONDS = 600.0
"""When a deletion is tried again that the operator hasn't the right to."""
UNKNOWN_JOB_SECONDS = 10.0
"""How long a child that goes on, whose job isn't known, is left alone: the watch may yet tell of its job."""


def find_expendable(job: FrayJob, children: Iterable[Manifest]) -> list[Manifest]:
    """Return which of these children are the job's and too old to be kept.

    The status may remember more attempts than keep theirs, or fewer: what counts is the number. A child
    without a readable one stays, and so does one whose name is that of an attempt that keeps it.
    """
    if not job.status.attempts:
        return []
    current = max(attempt.number for attempt in job.status.attempts)
    kept = range(max(1, current - KEPT_ATTEMPTS + 1), current + 1)
    recorded = {attempt.job_set for attempt in job.status.attempts if attempt.number in kept}
    return [
        child
        for child in children
        if is_owned(child, job)
        and not is_ending(child)
        and 0 < read_attempt_label(child) < kept.start
        and child["metadata"]["name"] not in recorded
        and not any(is_child_of(child, number) for number in kept)
    ]


class OldAttempts:
    """Deletes the children of attempts that are too old to be kept."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._removed: dict[Place, set[str]] = {}

    async def remove(self, key: Place, job: FrayJob, children: Iterable[Manifest]) -> None:
        """Delete these children but those of the last attempts; each once, for the cache is behind."""
        for child in find_expendable(job, children):
            uid = child["metadata"]["uid"]
            removed = self._removed.setdefault(key, set())
            if uid not in removed:
                await self._actor.delete_child(child)
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


class ObsoleteChildren:
    """Deletes obsolete children. `parse` reads a FrayJob, or raises `UnreadableError`.

    A request to create a child that had no answer may be carried out minutes later, when its attempt was
    stopped, ended or replaced long ago; nothing on the server fences it. `ownership` decides twice which one
    is obsolete: by what is known, then by the job and the child as the server has them.
    """

    def __init__(self, observer: Observer, actor: Actor, *, parse: Callable[[Manifest], FrayJob]) -> None:
        self._observer, self._actor, self._parse = observer, actor, parse

    async def remove(self, key: JobKey, job: FrayJob, children: Iterable[Manifest]) -> None:
        """Delete those of a job that is known, whose status is the one written last, among these children."""
        await self._remove(key, find_obsolete(job, children))

    async def remove_of_unknown(self, key: JobKey) -> None:
        """Delete those of a job that isn't known to go on: finished, gone, or not yet seen."""
        await self._remove(key, list(filter(may_be_obsolete, self._observer.list_children(key))))

    async def _remove(self, key: JobKey, suspects: list[Manifest]) -> None:
        # One whose hosts have all ended well holds nothing, and JobSet is about to say that it is completed.
        suspects = [each for each in suspects if not self._observer.has_succeeded(key, each)]
        if not suspects:
            return
        # After the children were seen: a status tells of an attempt before its children are made, so the one
        # read now tells of each of them. What is known of the job may be older.
        body = await self._observer.find_job(key)
        if body is None:
            return  # what it owned is the garbage collector's
        job = self._parse(body)
        for suspect in find_obsolete(job, suspects):
            role, name, uid = read_role(suspect), suspect["metadata"]["name"], suspect["metadata"]["uid"]
            child = await self._observer.fetch_child(role, key[0], name)
            if child is None or child["metadata"]["uid"] != uid or not find_obsolete(job, [child]):
                continue
            attempt = child["metadata"]["labels"][LABEL_ATTEMPT]
            text = "%s %s goes on, and attempt %s has ended: deleting it"
            logger.info(text, ROLES[role].kind, name, attempt)
            await self._actor.delete_child(child)


class OwnerCascade:
    """Stops child jobs whose parent has ended, and says why in an annotation.

    Each child looks for itself, in its own passes, so nothing is lost when the operator dies between a
    parent's end and the last of its children.
    """

    def __init__(self, jobs: Store, observer: Observer, actor: Actor) -> None:
        self._jobs, self._observer, self._actor = jobs, observer, actor

    async def end_with_parent(self, body: Manifest) -> Manifest:
        """Stop an unfinished job if its parent has ended; return it as it is now."""
        if get_parent_name(body) is None or body["spec"].get("stopped") or is_ending(body):
            return body
        end = derive_parents_end(body, await self._find_parent(body))
        if end is None:
            return body
        try:
            stopped = await self._actor.stop(body, because=end)
        except (ForbiddenError, RefusedError) as error:
            # Its status is kept up to date all the same.
            logger.warning("the job can't be stopped, although %s: %s", end, error)
            return body
        except NotFoundError:
            self._jobs.discard(place_of(body), uid=body["metadata"]["uid"])
            raise
        self._jobs.update(stopped)
        logger.info("stopped: %s", end)
        return stopped

    async def _find_parent(self, body: Manifest) -> ParentState | None:
        """Return the FrayJob that has the parent's name: as the cache knows it, or else the server."""
        key = body["metadata"]["namespace"], str(get_parent_name(body))
        cached = self._jobs.get(key)
        if cached is not None:
            return read_parent(cached)
        return await self._jobs.share_parent(key, lambda: self._fetch_parent(key)).get()

    async def _fetch_parent(self, key: JobKey) -> ParentState | None:
        found = await self._observer.find_job(key)
        return None if found is None else read_parent(found)
