"""What the driver has of a pool and workers haven't: its processes, its counts, and its end."""

from __future__ import annotations

import threading
import warnings
from typing import Protocol

from fray.job.engine import ContextStats
from fray.job.pool_stats import list_runs, summarize
from fray.job.timeline import TaskRun
from fray.runtime.pool.joined_pool import JoinedPool
from fray.runtime.pool.local_pool import LocalPool

__all__ = ["LocalOwner", "PoolOwner"]


class PoolOwner(Protocol):
    """What `PoolEngine` needs of the starter of the pool. After `stop`, counts raise `PoolClosedError`."""

    @property
    def metrics_address(self) -> str:
        """The path of the unix socket that shows the pool's counts, as Prometheus text over HTTP."""

    def stats(self) -> ContextStats:
        """Return what the pool has and did."""

    def runs(self) -> list[TaskRun]:
        """Return the last runs that have ended."""

    def count_running(self) -> int:
        """Return how many tasks and calls workers have; cheap."""

    def stop(self) -> None:
        """End all processes of the pool. May be called twice."""

    def abandon(self) -> None:
        """End the pool if it goes on although nobody can reach it any more. Never blocks."""


class LocalOwner:
    """The owner of a pool whose head is in this process, or of this process's part of another's pool."""

    def __init__(self, pool: LocalPool | JoinedPool) -> None:
        self._pool = pool

    @property
    def metrics_address(self) -> str:
        """See `PoolOwner`."""
        return self._pool.metrics.path

    def stats(self) -> ContextStats:
        """See `PoolOwner`."""
        return summarize(self._pool.stats(), self._pool.refusals())

    def runs(self) -> list[TaskRun]:
        """See `PoolOwner`."""
        return list_runs(self._pool.runs())

    def count_running(self) -> int:
        """See `PoolOwner`."""
        return self._pool.count_running()

    def stop(self) -> None:
        """See `PoolOwner`."""
        self._pool.stop()

    def abandon(self) -> None:
        """See `PoolOwner`; warns, since its user may still count on its tasks."""
        if self._pool.stopped:
            return
        # The collector comes in any thread, the head's own too, with any lock held: another one waits.
        threading.Thread(target=self._pool.stop, name="fray-pool-end").start()
        warnings.warn(
            "a pool was dropped that goes on; it's ended now. Call shutdown(), or use `with`",
            ResourceWarning,
            stacklevel=2,
        )
