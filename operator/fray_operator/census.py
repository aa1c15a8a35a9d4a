"""Knowing all FrayJobs of a namespace, and none that is gone: by asking the server, once and seldom.

kopf doesn't say when it has told of all jobs there were at the start. When its watch has to begin anew, since
it was too old to go on, it lists the jobs again and says nothing of those that are missing: their deletion
is never told. So what rests on who is there, and can't be undone, asks here first. What is known of jobs
stands in `jobs`.
"""

from __future__ import annotations

from fray_operator.jobs import JobStore
from fray_operator.observe import Observer
from fray_operator.shared_answer import SharedAnswer

__all__ = ["Census"]

FOR_EVER = float("inf")


class Census:
    """Reads all jobs of a namespace into the store, at most once until the watch begins anew."""

    def __init__(self, jobs: JobStore, observer: Observer) -> None:
        self._jobs, self._observer = jobs, observer
        self._listing = 0
        self._read: dict[str, SharedAnswer[None]] = {}

    async def know_all(self, namespace: str) -> None:
        """Know all jobs of a namespace, and of no other; raises `ApiError`."""
        if self._listing != self._jobs.listings:
            # What was read before, or is being read, may not tell what the watch has missed.
            self._listing = self._jobs.listings
            self._read.clear()
        if namespace not in self._read:
            self._read[namespace] = SharedAnswer(lambda: self._read_all(namespace), seconds=FOR_EVER)
        await self._read[namespace].get()

    async def forget_missing(self, namespace: str) -> None:
        """Know of no job that is gone; asks nothing until the watch begins anew. Raises `ApiError`."""
        if self._jobs.listings:
            await self.know_all(namespace)

    async def _read_all(self, namespace: str) -> None:
        await self._jobs.learn(namespace, self._observer.list_jobs(namespace))
