"""What there is of an attempt's workers: their Jobs, and of their pods what decisions rest on.

Manifests come in and frozen data goes out; `fray.plan.workers` decides by it. Reading the cluster is the
caller's. Most Jobs need no look at their pods: `needs_pods` says which do.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fray.plan.manifests import (
    Manifest,
    find_condition,
    has_ended,
    list_containers,
    read_attempt_label,
    read_label,
)
from fray.plan.names import read_generation
from fray.plan.node_evidence import Nodes, is_late
from fray.plan.observation import Deletion, Waiting
from fray.plan.pod_disruption import read_deletion
from fray.plan.scheduling import derive_waiting
from fray.plan.texts import clean_text
from fray.plan.timestamps import parse_time
from fray.termination import TerminationMessage
from fray.vocabulary import (
    ANNOTATION_KUEUE_ELASTIC,
    EXIT_PAYLOAD_CODE,
    EXIT_PAYLOAD_PYTHON,
    EXIT_WORKER_REFUSED,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
)

__all__ = [
    "Crash",
    "RunningWorker",
    "WorkerJob",
    "WorkersObservation",
    "derive_workers_observation",
    "find_crash",
    "needs_nodes",
    "needs_pods",
    "read_worker_job",
]

LOG_LINES: Final = 20
UNFIT_CODES: Final = frozenset({EXIT_PAYLOAD_PYTHON, EXIT_PAYLOAD_CODE, EXIT_WORKER_REFUSED})
"""How a worker ends whose image can't serve: the next worker of that image ends as this one."""


@dataclass(frozen=True)
class Crash:
    """How a worker crashed, in one sentence, and the last lines of its log."""

    message: str
    log_tail: tuple[str, ...] = ()

    @property
    def story(self) -> str:
        """Both in one text."""
        return "\n".join([self.message, *self.log_tail])


@dataclass(frozen=True)
class RunningWorker:
    """A pod of a Job of workers that hasn't ended: its node, and since when it is to end."""

    node: str | None
    deletion: Deletion | None


@dataclass(frozen=True)
class WorkerJob:
    """A Job of workers, as it is.

    `attempt` is the number that its label gives, None where it has no such label. `complete` are the indexes
    that ended well, and `active` counts the pods that run, or wait to. `ready` are the indexes whose pods
    take tasks, and `running` the pods that haven't ended; None where no pods were looked at.
    """

    name: str
    completions: int
    attempt: int | None = None
    active: int = 0
    ready_count: int = 0
    terminating: int = 0
    failed: int = 0
    complete: frozenset[int] = frozenset()
    ready: frozenset[int] | None = None
    running: tuple[RunningWorker, ...] | None = None
    completed: bool = False
    """Whether it has ended because all of its indexes are complete."""
    ended: bool = False
    """Whether it has ended, however; its pods have ended before."""
    leaving: bool = False
    """Whether it is being deleted."""
    created_at: datetime | None = None
    elastic: bool = False
    """Whether Kueue lets it change its size, where it is in a queue."""

    @property
    def succeeded(self) -> int:
        """How many of its indexes are complete.

        Not the count in its status: until the Job's controller has looked again after `completions` was
        lowered, that has indexes that are none any more.
        """
        return sum(index < self.completions for index in self.complete)

    @property
    def generation(self) -> int:
        """Which one it is of its attempt's, from 1."""
        return read_generation(self.name)

    def is_of(self, attempt: int) -> bool:
        """Return whether it is of an attempt, or doesn't say of which."""
        return self.attempt in (None, attempt)


@dataclass(frozen=True)
class WorkersObservation:
    """All Jobs of an attempt's workers, at one moment.

    `waiting` says why pods that should run don't, where that is known, `crash` how the last one crashed, and
    `unfit` how one ended whose image can't serve.
    `stale` are Jobs of other attempts that go on: a request to create one may be carried out late.
    """

    jobs: tuple[WorkerJob, ...] = ()
    stale: tuple[WorkerJob, ...] = ()
    waiting: Waiting | None = None
    crash: Crash | None = None
    unfit: Crash | None = None

    @property
    def ready(self) -> int:
        """How many take tasks."""
        return sum(one.ready_count for one in self.jobs)

    @property
    def left(self) -> tuple[WorkerJob, ...]:
        """Those whose pods may still run."""
        return tuple(one for one in (*self.stale, *self.jobs) if not one.ended)


def read_worker_job(manifest: Manifest, pods: Sequence[Manifest] | None = None) -> WorkerJob:
    """Return what a Job of workers, and its pods where they were looked at, tell."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    status = manifest.get("status") or {}
    completed = bool(find_condition(manifest, "Complete", status="True"))
    labelled = LABEL_ATTEMPT in (metadata.get("labels") or {})
    return WorkerJob(
        metadata["name"],
        spec.get("completions") or 0,
        attempt=read_attempt_label(manifest) if labelled else None,
        active=status.get("active") or 0,
        ready_count=status.get("ready") or 0,
        terminating=status.get("terminating") or 0,
        failed=status.get("failed") or 0,
        complete=_read_indexes(status.get("completedIndexes") or ""),
        ready=None if pods is None else frozenset(_list_ready(pods)),
        running=None if pods is None else tuple(_list_running(pods)),
        completed=completed,
        ended=completed or bool(find_condition(manifest, "Failed", status="True")),
        leaving="deletionTimestamp" in metadata,
        created_at=parse_time(created) if (created := metadata.get("creationTimestamp")) else None,
        elastic=(metadata.get("annotations") or {}).get(ANNOTATION_KUEUE_ELASTIC) == "true",
    )


def needs_pods(job: WorkerJob, *, attempt: int, wanted: int) -> bool:
    """Return whether the pods of a Job are to be looked at; `attempt` is the current one.

    One of another attempt is deleted whatever its pods do. Once any is being deleted, its pods show whether
    their nodes can still end them. Of the current attempt's, they show why some aren't ready, and which are
    where there are more than are wanted.
    """
    if job.ended:
        return False
    if job.leaving or not job.is_of(attempt):
        return job.leaving
    return not job.completions - job.succeeded == job.ready_count <= wanted


def needs_nodes(jobs: Iterable[WorkerJob], *, now: datetime) -> bool:
    """Return whether a worker should have ended by now, so that its node is to be looked at."""
    return any(is_late(worker.deletion, now=now) for job in jobs for worker in job.running or ())


def derive_workers_observation(
    jobs: Iterable[WorkerJob], pods: Sequence[Manifest], nodes: Nodes, *, attempt: int, now: datetime
) -> WorkersObservation:
    """Return what there is of the workers of an attempt.

    `jobs` are all Jobs of workers of its FrayJob, and `pods` those of the attempt's own that were looked at.
    A Job that is being deleted counts as ended once no node can end any worker that it waits for.
    """
    judged = [_give_up(job, nodes, now=now) for job in jobs]
    return WorkersObservation(
        tuple(job for job in judged if job.is_of(attempt)),
        stale=tuple(job for job in judged if not job.is_of(attempt)),
        waiting=derive_waiting(pods),
        crash=find_crash(pods),
        unfit=find_crash(pods, codes=UNFIT_CODES),
    )


def _give_up(job: WorkerJob, nodes: Nodes, *, now: datetime) -> WorkerJob:
    """Return a Job as ended whose deletion waits for nodes that can't end its workers."""
    if not job.leaving or not job.running:
        return job
    stuck = all(nodes.cannot_end(worker.node, worker.deletion, now=now) for worker in job.running)
    return replace(job, ended=job.ended or stuck)


def _read_indexes(text: str) -> frozenset[int]:
    """Return the indexes in a text such as `0,2-4`, as the Job controller writes them."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _list_ready(pods: Iterable[Manifest]) -> Iterator[int]:
    for pod in pods:
        index = read_label(pod, LABEL_COMPLETION_INDEX) or ""
        if index.isdecimal() and find_condition(pod, "Ready", status="True"):
            yield int(index)


def _list_running(pods: Iterable[Manifest]) -> Iterator[RunningWorker]:
    for pod in pods:
        if not has_ended(pod):
            yield RunningWorker((pod.get("spec") or {}).get("nodeName"), read_deletion(pod["metadata"]))


def find_crash(pods: Iterable[Manifest], *, codes: Container[int] | None = None) -> Crash | None:
    """Return how the last of pods that crashed ended; None where none has.

    `codes` are the exit codes that count (None: all but 0).
    """
    ended = [
        (state, pod)
        for pod in pods
        for state in _find_ends(pod)
        if (code := state.get("exitCode")) and (codes is None or code in codes)
    ]
    state, pod = max(ended, key=lambda found: str(found[0].get("finishedAt") or ""), default=({}, {}))
    if not state:
        return None
    where = f" on node {node}" if (node := (pod.get("spec") or {}).get("nodeName")) else ""
    sentence = f"{pod['metadata']['name']}{where} ended with exit code {state['exitCode']}"
    text = str(state.get("message") or "").strip()
    if (words := TerminationMessage.from_json(text)) is not None:
        return Crash(": ".join([sentence, *filter(None, [clean_text(" ".join(words.lines))])]))
    return Crash(sentence, tuple(map(clean_text, text.splitlines()[-LOG_LINES:])))


def _find_ends(pod: Manifest) -> Iterator[Manifest]:
    for container in list_containers(pod):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated:
            yield terminated
