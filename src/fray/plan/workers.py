"""How many workers the pool of a job is to have."""

from __future__ import annotations

from typing import Final

from fray.vocabulary import LABEL_JOB, LABEL_ROLE, Role
from fray.wire.frayjob import FrayJob, FrayJobSpec
from fray.wire.status import WorkerCounts

__all__ = ["WORKERS_SUPPORTED", "derive_wanted", "derive_worker_counts", "has_workers"]

WORKERS_SUPPORTED: Final = False
"""Whether worker pods are made. Until they can run tasks, a job that wants some is refused."""


def has_workers(spec: FrayJobSpec) -> bool:
    """Return whether a job may ever have workers."""
    return spec.workers.max_replicas != 0


def derive_wanted(spec: FrayJobSpec) -> int:
    """Return how many workers there are to be: as many as asked for, within their range."""
    workers = spec.workers
    wanted = max(workers.replicas, workers.min_replicas)
    return wanted if workers.max_replicas is None else min(wanted, workers.max_replicas)


def derive_worker_counts(job: FrayJob) -> WorkerCounts | None:
    """Return what the status tells of the workers, None for a job that can't have any."""
    if not has_workers(job.spec):
        return None
    return WorkerCounts(
        demand=job.spec.workers.replicas,
        desired=derive_wanted(job.spec),
        replicas=0,
        ready=0,
        draining=0,
        selector=f"{LABEL_JOB}={job.metadata.name},{LABEL_ROLE}={Role.WORKER}",
    )
