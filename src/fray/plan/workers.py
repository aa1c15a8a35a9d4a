"""How many workers the pool of a job has: what is wanted, what there is, and the next step between them.

The Job controller gives each worker an index. One that exits with 0 because it was asked to, by the head or
by a node that takes it away, hands over what it has, and its index is complete for ever. So a Job of workers
has as many indexes as are complete plus as many workers as are wanted. An index that is given up is the
highest, whatever its worker does. Where the head asks for workers, by demand, those that take tasks are left
to it: it ends idle ones first. Where users do, the worker of such an index gets SIGTERM from its node, and
hands over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fray.plan.gang import derive_gang
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Manifest, find_condition, list_containers
from fray.plan.names import read_generation
from fray.plan.observation import Waiting
from fray.plan.outside_text import clean_text
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOB, LABEL_ROLE, Reason, Role
from fray.wire.durations import parse_duration
from fray.wire.frayjob import FrayJob, FrayJobSpec, Timeouts
from fray.wire.quantities import parse_quantity
from fray.wire.status import AttemptStatus, WorkerCounts

__all__ = [
    "RemoveWorkers",
    "ResizeWorkers",
    "StartWorkers",
    "WorkerJob",
    "WorkerStep",
    "WorkersObservation",
    "can_have_workers",
    "decide_workers",
    "derive_failure",
    "derive_wanted",
    "derive_worker_counts",
    "describe_crash",
    "describe_offer",
    "find_removable",
    "has_keys",
    "has_workers",
    "read_worker_job",
]

MOST_CRASHES: Final = 8
LOG_LINES: Final = 20
ENGINES: Final = ("fray", "dask")
"""Engines that worker pods are made for; a job that wants workers of another one is refused."""


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


@dataclass(frozen=True)
class WorkerJob:
    """A Job of an attempt's workers, as it is.

    `succeeded` counts the indexes that are `complete`, and `active` the pods that run, or wait to. `ready`
    are the indexes whose pods take tasks; None where no pods were looked at.
    """

    name: str
    completions: int
    succeeded: int = 0
    active: int = 0
    ready_count: int = 0
    terminating: int = 0
    failed: int = 0
    complete: frozenset[int] = frozenset()
    ready: frozenset[int] | None = None
    completed: bool = False
    """Whether it has ended because all of its indexes are complete."""
    ended: bool = False
    """Whether it has ended, however; its pods have ended before."""
    leaving: bool = False
    """Whether it is being deleted."""
    created_at: datetime | None = None

    @property
    def generation(self) -> int:
        """Which one it is of its attempt's, from 1."""
        return read_generation(self.name)


@dataclass(frozen=True)
class WorkersObservation:
    """All Jobs of an attempt's workers, at one moment.

    `waiting` says why pods that should run don't, where that is known, `crash` how the last one crashed.
    `stale` are Jobs of other attempts that go on: a request to create one may be carried out late.
    """

    jobs: tuple[WorkerJob, ...] = ()
    stale: tuple[WorkerJob, ...] = ()
    waiting: Waiting | None = None
    crash: str | None = None

    @property
    def ready(self) -> int:
        """How many take tasks."""
        return sum(one.ready_count for one in self.jobs)

    @property
    def left(self) -> tuple[WorkerJob, ...]:
        """Those whose pods may still run."""
        return tuple(one for one in (*self.stale, *self.jobs) if not one.ended)


def has_workers(spec: FrayJobSpec) -> bool:
    """Return whether a job may ever have workers."""
    return spec.workers.max_replicas != 0


def can_have_workers(spec: FrayJobSpec) -> bool:
    """Return whether a job may ever have workers, and this version of Fray makes any."""
    return has_workers(spec) and spec.workers.engine in ENGINES


def has_keys(spec: FrayJobSpec) -> bool:
    """Return whether a job's hosts have the namespace's keys: for its pool, or so that it can call actors.

    A callable comes from Fray's client and may use any context. A command that does asks for workers.
    """
    return spec.entrypoint.callable is not None or can_have_workers(spec)


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
    One that Kueue has admitted keeps its size: older versions would evict it.
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
    completions = _derive_completions(newest, wanted, by_head=job.spec.workers.max_replicas is not None)
    if completions == newest.completions or derive_queue(job).name is not None:
        return None
    return ResizeWorkers(newest.name, completions)


def _derive_completions(job: WorkerJob, wanted: int, *, by_head: bool) -> int:
    """Return how many indexes a Job of workers is to have.

    Where the head says how many, no fewer than those that are ready leave.
    """
    surplus = job.completions - job.succeeded - wanted
    if surplus <= 0:
        return job.succeeded + wanted
    completions = job.completions
    for index in range(job.completions - 1, -1, -1):
        if not surplus or (by_head and (job.ready is None or index in job.ready)):
            break
        if index not in job.complete:
            completions, surplus = index, surplus - 1
    return completions


def read_worker_job(manifest: Manifest, pods: Iterable[Manifest] | None = None) -> WorkerJob:
    """Return what a Job of workers, and its pods where they were looked at, tell."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    status = manifest.get("status") or {}
    completed = bool(find_condition(manifest, "Complete", status="True"))
    return WorkerJob(
        metadata["name"],
        spec.get("completions") or 0,
        succeeded=status.get("succeeded") or 0,
        active=status.get("active") or 0,
        ready_count=status.get("ready") or 0,
        terminating=status.get("terminating") or 0,
        failed=status.get("failed") or 0,
        complete=_read_indexes(status.get("completedIndexes") or ""),
        ready=None if pods is None else frozenset(_list_ready(pods)),
        completed=completed,
        ended=completed or bool(find_condition(manifest, "Failed", status="True")),
        leaving="deletionTimestamp" in metadata,
        created_at=parse_time(created) if (created := metadata.get("creationTimestamp")) else None,
    )


def _read_indexes(text: str) -> frozenset[int]:
    """Return the indexes in a text such as `0,2-4`, as the Job controller writes them."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _list_ready(pods: Iterable[Manifest]) -> Iterable[int]:
    for pod in pods:
        index = (pod["metadata"].get("labels") or {}).get(LABEL_COMPLETION_INDEX, "")
        if index.isdecimal() and find_condition(pod, "Ready", status="True"):
            yield int(index)


def derive_failure(
    timeouts: Timeouts, attempt: AttemptStatus, observed: WorkersObservation, *, now: datetime
) -> str | None:
    """Return why an attempt's workers can't start, None where they can: one lost worker is no failure.

    Crashes count across indexes, and evictions don't. An image that isn't pulled counts after the time that
    the hosts have too. Once a worker took tasks they are the head's to judge.
    """
    if attempt.workers_time is not None:
        return None
    if sum(one.failed for one in observed.jobs) >= MOST_CRASHES:
        message = f"its workers crashed {MOST_CRASHES} times, and none took a task"
        return message if observed.crash is None else f"{message}; {observed.crash}"
    waiting = observed.waiting
    if timeouts.pending is None or waiting is None or waiting.reason is not Reason.IMAGE_PULL_FAILED:
        return None
    limit = timedelta(seconds=parse_duration(timeouts.pending))
    if any(one.created_at is not None and one.created_at + limit <= now for one in observed.left):
        message = f"no worker began within spec.timeouts.pending ({timeouts.pending})"
        return f"{message}: {waiting.message}"
    return None


def describe_crash(pods: Iterable[Manifest]) -> str | None:
    """Return how the last worker that crashed ended, with the end of its log; None where none has."""
    ended = [(state, pod) for pod in pods for state in _find_ends(pod) if state.get("exitCode")]
    state, pod = max(ended, key=lambda found: str(found[0].get("finishedAt") or ""), default=({}, {}))
    if not state:
        return None
    where = f" on node {node}" if (node := (pod.get("spec") or {}).get("nodeName")) else ""
    sentence = f"{pod['metadata']['name']}{where} ended with exit code {state['exitCode']}"
    log = str(state.get("message") or "").strip().splitlines()[-LOG_LINES:]
    return "\n".join([sentence, *map(clean_text, log)])


def _find_ends(pod: Manifest) -> Iterator[Manifest]:
    for container in list_containers(pod):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated:
            yield terminated


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
