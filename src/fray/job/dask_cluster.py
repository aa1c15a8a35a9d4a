"""A Dask cluster of processes on this machine, with workers for tasks and one for actors."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Mapping
from typing import Any

import dask
from distributed import Nanny, Scheduler, SpecCluster
from tornado.ioloop import IOLoop

from fray.errors import ContextUnavailableError
from fray.job.dask_actors import ACTORS, TASKS
from fray.runtime.loop_thread import LoopThread

__all__ = ["start_cluster"]

MANY = 1_000_000
"""Of the resource that says what a worker is for."""
HOST = "127.0.0.1"
GUARD = (
    "In a script, begin under `if __name__ == '__main__':`, since each worker of Dask runs the script's top "
    "level first. Else what the workers printed says why."
)


class _Cluster(SpecCluster):
    """Leaves workers to their nannies, which start them again, however long that takes.

    Its event loop is one of Fray's: one that `distributed` starts must run within 10 s, however busy the
    machine is (its `LoopRunner`).
    """

    def __init__(self, workers: Mapping[str, Any], scheduler: Mapping[str, Any]) -> None:
        self._own = LoopThread("fray-dask-cluster")
        try:
            loop = self._own.run(_find_loop())
            super().__init__(workers, scheduler, loop=loop, silence_logs=logging.ERROR)  # type: ignore[no-untyped-call]
        except BaseException:
            self._own.close()
            raise

    def close(self, timeout: float | None = None) -> Any:
        """End it with its processes, and its loop; on that loop, return what is to be awaited."""
        ended = super().close(timeout)
        if not self.asynchronous:
            self._own.close()
        return ended

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # Without SpecCluster's own step, which gives up a worker that isn't back after some seconds.
        super(SpecCluster, self)._update_worker_status(op, msg)  # type: ignore[no-untyped-call]


def start_cluster(workers: int, resources: Mapping[str, float], memory: int | None) -> SpecCluster:
    """Start a cluster whose first worker has `resources`; `memory` bytes are for all workers together.

    It has no dashboard, nor the profiler that wakes each process 100 times a second for it, and listens on
    this machine alone.

    Raises `ContextUnavailableError` where its processes don't start.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as `multiprocessing.spawn` looks
        raise ContextUnavailableError("dask", "this process is one of its workers, and begins", GUARD)
    limit = "auto" if memory is None else memory // (workers + 1)

    def worker(resources: Mapping[str, float]) -> dict[str, Any]:
        chosen = {"nthreads": 1, "host": HOST, "dashboard": False, "silence_logs": logging.ERROR}
        return {"cls": Nanny, "options": {**chosen, "memory_limit": limit, "resources": dict(resources)}}

    specs = {f"task-{index}": worker({TASKS: MANY, **({} if index else resources)})
             for index in range(workers)}  # fmt: skip
    served = {"host": HOST, "port": 0, "dashboard": False, "dashboard_address": f"{HOST}:0"}
    try:
        with dask.config.set({"distributed.worker.profile.enabled": False}):
            return _Cluster(specs | {"actors": worker({ACTORS: MANY})}, {"cls": Scheduler, "options": served})
    except RuntimeError as error:
        raise ContextUnavailableError("dask", f"its workers don't start ({error})", GUARD) from error


async def _find_loop() -> IOLoop:
    return IOLoop.current()
