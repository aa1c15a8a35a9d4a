"""How many workers the pool of a job is to have, and the next step from those that there are.

The Job controller gives each worker an index. One that exits with 0 because it was asked to, by the head or
by a node that takes it away, hands over what it has, and its index is complete for ever. So a Job of workers
has as many indexes as are complete plus as many workers as are wanted. An index that is given up is the
highest, whatever its worker does. So workers that take tasks are left to the head, which lets idle ones go
first, and only those that aren't ready yet lose their index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fray.plan.gang import derive_gang
from fray.plan.kueue import derive_queue
from fray.plan.verdict import Cause
from fray.plan.worker_observation import WorkerJob, WorkersObservation
from fray.vocabulary import LABEL_JOB, LABEL_ROLE, Reason, Role
from fray.wire.frayjob import FrayJob, FrayJobSpec, Timeouts
from fray.wire.quantities import parse_quantity
from fray.wire.status import AttemptStatus, WorkerCounts

__all__ = [
    "MOST_CRASHES",
    "RemoveWorkers",
    "ResizeWorkers",
    "StartWorkers",
    "WorkerStep",
    "decide_workers",
    "derive_failure",
    "derive_wanted",
    "derive_worker_counts",
    "describe_offer",
    "find_removable",
    "has_fixed_size",
    "has_keys",
    "has_workers",
]

MOST_CRASHES: Final = 8


@dataclass(frozen=True)
class StartWorkers:
    """Create a Job of workers."""

    generation: int
    count: int


@dataclass(frozen=True)
class ResizeWorkers:
    """Give a Job of workers another number of indexes."""

    name: str
    completions: int


@dataclass(frozen=True)
class RemoveWorkers:
    """Delete a Job of workers that another one has followed."""

    name: str


WorkerStep = StartWorkers | ResizeWorkers | RemoveWorkers


def has_workers(spec: FrayJobSpec) -> bool:
    """Return whether a job may ever have workers."""
    return spec.workers.max_replicas != 0


def has_keys(spec: FrayJobSpec) -> bool:
    """Return whether a job's hosts have the namespace's keys: for its pool, or so that it can call actors.

    A callable comes from Fray's client and may use any context. A command that does asks for workers.
    """
    return spec.entrypoint.callable is not None or has_workers(spec)


def has_fixed_size(job: FrayJob, *, elastic: bool) -> bool:
    """Return whether its Jobs of workers keep their size: in a queue whose Kueue knows no `elastic` ones."""
    return derive_queue(job).name is not None and not elastic


def derive_wanted(spec: FrayJobSpec) -> int:
    """Return how many workers there are to be: as many as asked for, within their range."""
    workers = spec.workers
    wanted = max(workers.replicas, workers.min_replicas)
    return wanted if workers.max_replicas is None else min(wanted, workers.max_replicas)


def describe_offer(spec: FrayJobSpec) -> str | None:
    """Return what one worker offers to tasks, as `CPU=4,memory=8589934592`; None if cpu isn't set.

    CPUs are whole ones, at least 1: each is the slot of a task.
    """
    asked = spec.workers.resources
    if asked.cpu is None:
        return None
    gang = derive_gang(spec.model_copy(update={"resources": asked, "replicas": 1}))
    offered = {"CPU": max(1, int(parse_quantity(asked.cpu)))}
    if asked.memory is not None:
        offered["memory"] = int(parse_quantity(asked.memory))
    if gang.gpu is not None:
        offered["gpu"] = gang.gpu.count
    if gang.tpu is not None:
        offered["tpu"] = gang.tpu.chips_per_host
    return ",".join(f"{name}={amount}" for name, amount in offered.items())


def find_removable(jobs: Iterable[WorkerJob]) -> RemoveWorkers | None:
    """Return which of the Jobs of workers that are to go is deleted next, None where all have ended or go."""
    going = (one for one in jobs if not (one.ended or one.leaving))
    return next((RemoveWorkers(one.name) for one in going), None)


def decide_workers(job: FrayJob, jobs: Sequence[WorkerJob]) -> WorkerStep | None:
    """Return the next step towards the workers that a running attempt is to have, None when there is none.

    `jobs` are all Jobs of its workers. A Job that has failed stays: its head has ended it, or it can't run.
    One in a queue keeps its size, unless it was made as one that may change it: other Kueues would evict it.
    """
    wanted = derive_wanted(job.spec)
    newest = max(jobs, key=lambda one: one.generation, default=None)
    if newest is None:
        return StartWorkers(1, wanted) if wanted else None
    if newest.leaving:
        return None
    for older in jobs:
        if older.generation < newest.generation and not older.leaving:
            return RemoveWorkers(older.name)
    if newest.ended:
        return StartWorkers(newest.generation + 1, wanted) if newest.completed and wanted else None
    completions = _derive_completions(newest, wanted)
    if completions == newest.completions or has_fixed_size(job, elastic=newest.elastic):
        return None
    return ResizeWorkers(newest.name, completions)


def _derive_completions(job: WorkerJob, wanted: int) -> int:
    """Return how many indexes a Job of workers is to have: none of a worker that is ready is given up."""
    surplus = job.completions - job.succeeded - wanted
    if surplus <= 0:
        return job.succeeded + wanted
    completions = job.completions
    for index in range(job.completions - 1, -1, -1):
        if not surplus or job.ready is None or index in job.ready:
            break
        if index not in job.complete:
            completions, surplus = index, surplus - 1
    return completions


def derive_failure(
    timeouts: Timeouts, attempt: AttemptStatus, observed: WorkersObservation, *, now: datetime
) -> Cause | None:
    """Return why an attempt ends whose workers can't start; None where they can: one lost is no failure.

    Crashes count across indexes, and evictions don't. One worker whose image can't serve is enough. An image
    that isn't pulled counts after the time that the hosts have too. Once a worker took tasks they are the
    head's to judge.
    """
    if attempt.workers_time is not None or observed.ready:
        return None
    if (unfit := observed.unfit) is not None:
        message = f"its workers can't join; {unfit.message}"
        return Cause(Reason.WORKER_IMAGE_MISMATCH, message, now, log_tail=unfit.log_tail)
    if sum(one.failed for one in observed.jobs) >= MOST_CRASHES:
        message = f"its workers crashed {MOST_CRASHES} times, and none took a task"
        if (crash := observed.crash) is None:
            return Cause(Reason.WORKERS_FAILED, message, now)
        return Cause(Reason.WORKERS_FAILED, f"{message}; {crash.message}", now, log_tail=crash.log_tail)
    waiting = observed.waiting
    if timeouts.pending_seconds is None or waiting is None or waiting.reason is not Reason.IMAGE_PULL_FAILED:
        return None
    limit = timedelta(seconds=timeouts.pending_seconds)
    if any(one.created_at is not None and one.created_at + limit <= now for one in observed.left):
        message = f"no worker began within spec.timeouts.pendingSeconds ({timeouts.pending_seconds})"
        return Cause(Reason.WORKERS_FAILED, f"{message}: {waiting.message}", now)
    return None


def derive_worker_counts(job: FrayJob, jobs: Sequence[WorkerJob] = ()) -> WorkerCounts | None:
    """Return what the status tells of the workers, None for a job that can't have any."""
    if not has_workers(job.spec):
        return None
    return WorkerCounts(
        demand=job.spec.workers.replicas,
        desired=derive_wanted(job.spec),
        replicas=sum(one.active for one in jobs),
        ready=sum(one.ready_count for one in jobs),
        draining=sum(one.terminating for one in jobs),
        selector=f"{LABEL_JOB}={job.metadata.name},{LABEL_ROLE}={Role.WORKER}",
    )
