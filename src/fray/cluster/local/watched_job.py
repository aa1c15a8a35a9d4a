"""A local job as somebody watches it: how it stands, and a pause until that, or its output, has changed.

A job of this process tells of each change; one that another process runs has to be looked at again and
again. Its output is read by `log_lines`; who started it is `launched`.
"""

from __future__ import annotations

import time
from typing import Protocol

from fray.cluster.local.jobs import observe_job
from fray.cluster.local.store import StateDirectory
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob

__all__ = ["JobWatch", "StrangersJob"]

FIRST_PAUSE = 0.05
LAST_PAUSE = 0.25
"""Seconds between two looks at a job of another process, doubled from the first to the last."""


class JobWatch(Protocol):
    """A job that is being watched, by one thread."""

    def look(self) -> tuple[FrayJob, bool]:
        """Return the job as it stands, and whether it has ended and all of its output is on disk.

        Raises:
            JobNotFoundError: it isn't there any more.
            StateDirectoryError: it can't be read.
        """
        ...

    def pause(self, seconds: float | None = None) -> None:
        """Return once something may have changed since the last look, after `seconds` at the latest."""
        ...


class StrangersJob:
    """A job that another process runs or ran."""

    def __init__(self, state: StateDirectory, name: str) -> None:
        self._state = state
        self._name = name
        self._seconds = FIRST_PAUSE
        self._seen: FrayJob | None = None

    def look(self) -> tuple[FrayJob, bool]:
        """Return the job as its files tell of it."""
        job = observe_job(self._state, self._name)
        if job != self._seen:
            self._seen, self._seconds = job, FIRST_PAUSE
        return job, is_finished(job.status)

    def pause(self, seconds: float | None = None) -> None:
        """Sleep for a while, longer each time that nothing has changed; never long."""
        del seconds
        time.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, LAST_PAUSE)
