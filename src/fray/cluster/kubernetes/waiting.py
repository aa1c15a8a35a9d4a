"""Waiting for jobs: one watch for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.kubernetes.results import describe_place, is_possible_name, read_job
from fray.cluster.kubernetes.watching import Subject, list_subject, watch_until_complete
from fray.errors import JobDeletedError, JobNotFoundError
from fray.kube.api import Manifest, WatchEvent
from fray.kube.resources import FRAYJOBS
from fray.plan.status import has_succeeded, is_finished
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["JobWait", "WatchSet", "look_up", "wait_until_finished"]

IsOver = Callable[[FrayJob], bool]


def _has_finished(job: FrayJob) -> bool:
    return is_finished(job.status)


class WatchSet:
    """The jobs that are waited for, as they were seen last; a job that is gone is an error."""

    def __init__(
        self,
        names: Collection[JobId],
        where: str,
        *,
        is_over: IsOver = _has_finished,
        fail_fast: bool = False,
    ) -> None:
        self._names, self._where, self._is_over = frozenset(names), where, is_over
        self._fail_fast, self._failed = fail_fast, False
        self.seen: dict[JobId, FrayJob] = {}
        """Each job as it was seen last."""
        self.version: str | None = None
        """What to watch from; None before the first list, and where the last version is too old."""
        self._finished: set[JobId] = set()

    @property
    def complete(self) -> bool:
        """Whether every job has finished; with `fail_fast`, whether one did in anything but success."""
        return len(self._finished) == len(self._names) or (self._fail_fast and self._failed)

    @property
    def subject(self) -> Subject:
        """What has to be watched: the one job, or all of the namespace where there are several."""
        (first, *others) = self._names
        return Subject(FRAYJOBS, fields="" if others else f"metadata.name={first}")

    def take_list(self, jobs: Iterable[Manifest], version: str) -> None:
        """Note how jobs stand; raises `JobNotFoundError` where one isn't there."""
        present = {JobId(job["metadata"]["name"]): job for job in jobs}
        for name in sorted(self._names & present.keys()):
            self._note(present[name])
        for name in sorted(self._names - self._finished - present.keys()):
            raise (JobDeletedError if name in self.seen else JobNotFoundError)(name, self._where)
        self.version = version

    def take_event(self, event: WatchEvent) -> None:
        """Note what a watch tells; raises `JobDeletedError` where a job was deleted before its end."""
        metadata = event.object["metadata"]
        self.version = metadata["resourceVersion"]
        name = metadata.get("name")
        if event.type == "BOOKMARK" or name not in self._names:
            return
        self._note(event.object)
        if event.type == "DELETED" and name not in self._finished:
            raise JobDeletedError(name, self._where)

    def _note(self, job: Manifest) -> None:
        name = JobId(job["metadata"]["name"])
        if name in self._finished:
            return  # what comes after its end is its deletion, or another job of its name
        before, read = self.seen.get(name), FrayJob.from_manifest(job)
        if before is not None and before.metadata.uid != read.metadata.uid:
            raise JobDeletedError(name, self._where)
        self.seen[name] = read
        if self._is_over(read):
            self._finished.add(name)
            self._failed = self._failed or not has_succeeded(read.status)


async def look_up(access: Access, watched: WatchSet) -> None:
    """Note how the jobs of a watch set stand now.

    Raises `JobNotFoundError`, or the `ApiError` that remained after some tries.
    """
    await persistently(lambda: list_subject(access, watched.subject, watched))


async def wait_until_finished(access: Access, watched: WatchSet) -> None:
    """Return once a watch set is complete, which was looked up before; there is no time limit.

    Raises `JobDeletedError` where one is deleted before its end, and the `ApiError` of a missing right.
    """
    await watch_until_complete(access, watched.subject, watched)


class JobWait:
    """A call that waits for jobs: when credentials are read anew, it goes on where it was.

    It returns each job as it was seen last, once all are over (with `fail_fast` one in
    anything but success), or `timeout` seconds have passed. Whatever
    is seen of a job is shown to `is_over`.
    """

    def __init__(
        self,
        names: Collection[JobId],
        timeout: float | None,
        *,
        is_over: IsOver = _has_finished,
        fail_fast: bool = False,
    ) -> None:
        self._names, self._timeout = frozenset(names), timeout
        self._is_over, self._fail_fast = is_over, fail_fast
        self._watched: WatchSet | None = None
        self._deadline: float | None = None

    async def __call__(self, access: Access) -> dict[JobId, FrayJob]:
        """Wait on a connection; raises `JobNotFoundError`, `JobDeletedError` or `ApiError`."""
        time = asyncio.get_running_loop().time
        if self._watched is None:
            self._deadline = None if self._timeout is None else time() + self._timeout
            looked = WatchSet(
                self._names, describe_place(access), is_over=self._is_over, fail_fast=self._fail_fast
            )
            for name in sorted(filter(lambda name: not is_possible_name(name), self._names)):
                await read_job(access, name)  # which says so
            # The first look isn't limited: it tells how jobs stand, and which are not there.
            try:
                await look_up(access, looked)
            except JobNotFoundError as missing:
                await read_job(access, JobId(missing.name))  # which tells names like it
                raise
            self._watched = looked
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline):
                await wait_until_finished(access, self._watched)
        return self._watched.seen
