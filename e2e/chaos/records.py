"""What was done and what was seen, with times in seconds since the epoch: all that is judged afterwards.

Pure data, and how manifests become such. Deciding on it is `prediction` and `invariants`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from e2e.chaos.oracle import is_finished
from e2e.chaos.plan import Act
from fray.plan.timestamps import parse_time
from fray.vocabulary import (
    CONTAINER,
    LABEL_ACTOR,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_POD_INDEX,
    LABEL_ROLE,
    ConditionType,
    Role,
)

__all__ = [
    "NODE_DELETED",
    "POD_DELETED",
    "ActorSighting",
    "Hit",
    "JobSetSighting",
    "JobSighting",
    "LeaseSighting",
    "Outage",
    "PodSighting",
    "Records",
    "UserAct",
    "read_actor",
    "read_job",
    "read_jobset",
    "read_lease",
    "read_pod",
]

Manifest = Mapping[str, Any]

NODE_DELETED = "node deleted"
POD_DELETED = "deleted"
LOST = "ContainerStatusUnknown"
"""Reason of a container that its kubelet's runtime knows nothing of:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/status/status_manager.go
"""


@dataclass(frozen=True)
class Hit:
    """A pod that the agent evicted, deleted or killed; `at` is when that was agreed or done.

    A pod of an actor has that one's name for its job, and no attempt: 0.
    """

    at: float
    job: str
    attempt: int
    uid: str
    node: str | None
    how: str


@dataclass(frozen=True)
class UserAct:
    """What a user did; `attempt` is the last one that was seen by then, 0 before any."""

    at: float
    job: str
    attempt: int
    act: Act


@dataclass(frozen=True)
class Outage:
    """A time without the kubelet of a host; `end` is when its node was ready again."""

    host: str
    begin: float
    end: float
    how: str


@dataclass(frozen=True)
class PodSighting:
    """A pod at one moment; `gone` once it was deleted, `reason` what its kubelet or a controller said.

    The reason of its container counts where that is `LOST`: a kubelet that was away found no trace of it.
    A member's pod has its actor's name for its job, the attempt 0, and the member's `index`.
    """

    at: float
    uid: str
    name: str
    job: str
    attempt: int
    node: str | None = None
    phase: str = "Pending"
    ending: bool = False
    gone: bool = False
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    role: str = Role.HOST
    index: int | None = None

    @property
    def lives(self) -> bool:
        """Whether it may run."""
        return not self.gone and self.phase not in ("Succeeded", "Failed")


@dataclass(frozen=True)
class JobSetSighting:
    """A JobSet at one moment."""

    at: float
    uid: str
    name: str
    job: str
    attempt: int
    gone: bool = False


@dataclass(frozen=True)
class JobSighting:
    """A FrayJob at one moment: `verdicts` by number of attempt, as far as there are any."""

    at: float
    name: str
    phase: str | None
    finished: bool
    attempt: int
    verdicts: Mapping[int, str]
    status: Manifest
    gone: bool = False


@dataclass(frozen=True)
class ActorSighting:
    """A FrayActor at one moment; `conditions` are the status and the reason of each by its type."""

    at: float
    name: str
    conditions: Mapping[str, tuple[str, str]]
    restarts: int
    gone: bool = False

    @property
    def finished(self) -> bool:
        """Whether its status says that it has ended."""
        return self._holds(ConditionType.FINISHED)

    @property
    def ready(self) -> bool:
        """Whether all its members take calls."""
        return self._holds(ConditionType.READY)

    def _holds(self, kind: str) -> bool:
        return self.conditions.get(kind, ("", ""))[0] == "True"


@dataclass(frozen=True)
class LeaseSighting:
    """The operator's Lease at one moment; `holder` is empty while nobody leads."""

    at: float
    holder: str


@dataclass
class Records:
    """All of a campaign, each list in the order in which things came."""

    hits: list[Hit] = field(default_factory=list)
    acts: list[UserAct] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    pods: list[PodSighting] = field(default_factory=list)
    jobsets: list[JobSetSighting] = field(default_factory=list)
    jobs: list[JobSighting] = field(default_factory=list)
    leases: list[LeaseSighting] = field(default_factory=list)
    actors: list[ActorSighting] = field(default_factory=list)

    def last_pods(self, job: str) -> list[PodSighting]:
        """Each pod of a job as it was seen last, with what was seen earlier and is told no more."""
        last: dict[str, PodSighting] = {}
        for pod in self.pods:
            if pod.job == job:
                last[pod.uid] = pod
        return list(last.values())

    def last_job(self, name: str) -> JobSighting | None:
        """A FrayJob as it was seen last, with the last status that it had; None for one that never was."""
        seen = [job for job in self.jobs if job.name == name]
        return seen[-1] if seen else None

    def last_attempt(self, job: str) -> int:
        """The highest number of an attempt whose JobSet was seen."""
        return max((jobset.attempt for jobset in self.jobsets if jobset.job == job), default=0)


def read_pod(at: float, manifest: Manifest, *, gone: bool) -> PodSighting | None:
    """What is seen of a pod; None for one that is neither of an attempt nor of an actor."""
    metadata, status = manifest["metadata"], manifest.get("status", {})
    labels = metadata.get("labels", {})
    member = LABEL_ACTOR in labels
    if not member and (LABEL_JOB not in labels or LABEL_ATTEMPT not in labels):
        return None
    container = _main_container(status.get("containerStatuses", []))
    state: Manifest = container.get("state", {})
    running, ended = state.get("running", {}), state.get("terminated", {})
    marks = [c for c in status.get("conditions", []) if c["type"] == "DisruptionTarget"]
    mark: Manifest = next((c for c in marks if c["status"] == "True"), {})
    return PodSighting(
        at=at,
        uid=metadata["uid"],
        name=metadata["name"],
        job=labels[LABEL_ACTOR if member else LABEL_JOB],
        attempt=0 if member else int(labels[LABEL_ATTEMPT]),
        node=manifest.get("spec", {}).get("nodeName"),
        phase=status.get("phase", "Pending"),
        ending="deletionTimestamp" in metadata,
        gone=gone,
        started=_seconds(running.get("startedAt") or ended.get("startedAt")),
        finished=_seconds(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        reason=status.get("reason") or mark.get("reason") or (LOST if _is_lost(container) else None),
        role=labels.get(LABEL_ROLE, Role.HOST),
        index=int(labels[LABEL_POD_INDEX]) if member else None,
    )


def read_jobset(at: float, manifest: Manifest, *, gone: bool) -> JobSetSighting | None:
    """What is seen of a JobSet; None for one that isn't of an attempt."""
    metadata = manifest["metadata"]
    labels = metadata.get("labels", {})
    if LABEL_JOB not in labels or LABEL_ATTEMPT not in labels:
        return None
    attempt = int(labels[LABEL_ATTEMPT])
    return JobSetSighting(at, metadata["uid"], metadata["name"], labels[LABEL_JOB], attempt, gone)


def read_job(at: float, manifest: Manifest, *, gone: bool) -> JobSighting:
    """What is seen of a FrayJob."""
    status = manifest.get("status", {})
    attempts: Sequence[Manifest] = status.get("attempts", [])
    return JobSighting(
        at=at,
        name=manifest["metadata"]["name"],
        phase=status.get("phase"),
        finished=is_finished(status),
        attempt=max((attempt["number"] for attempt in attempts), default=0),
        verdicts={each["number"]: each["verdict"] for each in attempts if each.get("verdict")},
        status=status,
        gone=gone,
    )


def read_actor(at: float, manifest: Manifest, *, gone: bool) -> ActorSighting:
    """What is seen of a FrayActor."""
    status = manifest.get("status", {})
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", [])}
    name, restarts = manifest["metadata"]["name"], status.get("restarts", 0)
    return ActorSighting(at=at, name=name, conditions=conditions, restarts=restarts, gone=gone)


def read_lease(at: float, manifest: Manifest) -> LeaseSighting:
    """What is seen of the operator's Lease."""
    return LeaseSighting(at, manifest.get("spec", {}).get("holderIdentity") or "")


def _main_container(statuses: Sequence[Manifest]) -> Manifest:
    return next((one for one in statuses if one.get("name") == CONTAINER), {})


def _is_lost(container: Manifest) -> bool:
    """Return whether its kubelet found a container no more: one that never was has no id."""
    ended = container.get("state", {}).get("terminated", {})
    return ended.get("reason") == LOST and "containerID" in container


def _seconds(text: str | None) -> float | None:
    moment: datetime | None = None if text is None else parse_time(text)
    return None if moment is None else moment.timestamp()
