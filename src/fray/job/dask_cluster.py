"""A Dask cluster of processes on this machine, with workers for tasks and one for actors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from distributed import Nanny, Scheduler, SpecCluster

from fray.job.dask_engine import ACTORS, TASKS

__all__ = ["start_cluster"]

MANY = 1_000_000
"""Of the resource that says what a worker is for."""
HOST = "127.0.0.1"


class _Cluster(SpecCluster):
    """Leaves workers to their nannies, which start them again, however long that takes."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # Without SpecCluster's own step, which gives up a worker that isn't back after some seconds.
        super(SpecCluster, self)._update_worker_status(op, msg)  # type: ignore[no-untyped-call]


def start_cluster(workers: int, resources: Mapping[str, float], memory: int | None) -> SpecCluster:
    """Start a cluster whose first worker has `resources`; `memory` bytes are for all workers together.

    It has no dashboard, and listens on this machine alone.
    """
    limit = "auto" if memory is None else memory // (workers + 1)

    def worker(resources: Mapping[str, float]) -> dict[str, Any]:
        chosen = {"nthreads": 1, "host": HOST, "dashboard": False, "silence_logs": logging.ERROR}
        return {"cls": Nanny, "options": {**chosen, "memory_limit": limit, "resources": dict(resources)}}

    specs = {f"task-{index}": worker({TASKS: MANY, **({} if index else resources)})
             for index in range(workers)}  # fmt: skip
    served = {"host": HOST, "port": 0, "dashboard": False, "dashboard_address": f"{HOST}:0"}
    return _Cluster(  # type: ignore[no-untyped-call]
        specs | {"actors": worker({ACTORS: MANY})},
        {"cls": Scheduler, "options": served},
        silence_logs=logging.ERROR,
    )
