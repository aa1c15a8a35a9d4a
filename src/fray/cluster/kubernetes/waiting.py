"""Waiting for jobs: one watch for all of them, for as long as it takes.

An API server that restarts, a watch that ends, is cut, falls silent or is too old is no end of the wait:
it goes on from the last version that was seen, or from a new list. There is no time limit here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from typing import cast

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.retries import Sleep, choose_pause, persistently
from fray.errors import JobDeletedError, JobNotFoundError
from fray.kube.api import Manifest, WatchEvent
from fray.kube.errors import ExpiredError, ServerError, ThrottledError, UnreachableError
from fray.kube.resources import FRAYJOBS
from fray.plan.status import is_finished
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["Roll", "look_up", "wait_until_finished"]

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
SUFFICIENT_SECONDS = 5.0
"""A watch that held for so long was in order; one that ends sooner is followed by a pause."""


class Roll:
    """The jobs that are waited for, as they were seen last; a job that is gone is told by an error."""

    def __init__(self, names: Collection[JobId], where: str) -> None:
        self._names, self._where = frozenset(names), where
        self.seen: dict[JobId, Manifest] = {}
        """Each job as it was seen last."""
        self.version: str | None = None
        """What to watch from; None before the first list, and where the last version is too old."""
        self._finished: set[JobId] = set()

    @property
    def complete(self) -> bool:
        """Whether every job has finished."""
        return len(self._finished) == len(self._names)

    @property
    def field_selector(self) -> str:
        """What a list or a watch has to be about; all jobs of the namespace, where there are several."""
        (first, *others) = self._names
        return "" if others else f"metadata.name={first}"

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
        before = self.seen.get(name)
        if before is not None and before["metadata"]["uid"] != job["metadata"]["uid"]:
            raise JobDeletedError(name, self._where)
        self.seen[name] = job
        if is_finished(FrayJob.from_manifest(job).status):
            self._finished.add(name)


async def look_up(access: Access, roll: Roll) -> None:
    """Note how the jobs of a roll stand now.

    Raises `JobNotFoundError`, or the `ApiError` that remained after some tries.
    """
    await persistently(lambda: _list(access, roll))


async def wait_until_finished(access: Access, roll: Roll, *, sleep: Sleep = asyncio.sleep) -> None:
    """Return once every job of a roll has finished, which was looked up before.

    Raises `JobDeletedError` where one is deleted before its end, and the `ApiError` of a missing right.
    """
    time = asyncio.get_running_loop().time
    pause = FIRST_PAUSE
    while not roll.complete:
        begun, wanted = time(), 0.0
        try:
            await _watch(access, roll)
        except ExpiredError:
            roll.version = None
        except (ServerError, ThrottledError, UnreachableError) as error:
            wanted = choose_pause(error, pause)
            if pause == FIRST_PAUSE:
                logger.warning("jobs can't be watched, and are waited for all the same: %s", error)
        if roll.complete:
            return
        if time() - begun >= SUFFICIENT_SECONDS:
            pause = FIRST_PAUSE
        await sleep(max(wanted, pause))
        pause = min(2 * pause, LONGEST_PAUSE)


async def _list(access: Access, roll: Roll) -> None:
    jobs: list[Manifest] = []
    version = ""
    pages = access.api.list_pages(FRAYJOBS, namespace=access.namespace, fields=roll.field_selector)
    async for page in pages:
        jobs += page.items
        version = page.resource_version
    roll.take_list(jobs, version)


async def _watch(access: Access, roll: Roll) -> None:
    if roll.version is None:
        await _list(access, roll)
    if roll.complete or roll.version is None:
        return
    events = access.api.watch(
        FRAYJOBS,
        resource_version=roll.version,
        namespace=access.namespace,
        fields=roll.field_selector,
    )
    async with aclosing(cast("AsyncGenerator[WatchEvent]", events)) as open_events:
        async for event in open_events:
            roll.take_event(event)
            if roll.complete:
                return
