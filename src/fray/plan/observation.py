"""What was seen of an attempt's hosts: the input of every decision.

The operator fills these from pods, the local backend from processes; nothing downstream knows which. Here
text from outside comes in, and nowhere else, so here it is made fit to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fray.plan.texts import clean_text
from fray.vocabulary import Reason

__all__ = [
    "DEADLINE_EXCEEDED",
    "EVICTED_FOR_USE",
    "KILL_CODES",
    "NEVER_RAN",
    "OOM_KILLED",
    "START_FAILED",
    "Deletion",
    "Evidence",
    "EvidenceKind",
    "GangObservation",
    "HostObservation",
    "HostPhase",
    "Suspension",
    "Waiting",
]

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Pod reason of the kubelet: it was ended after `activeDeadlineSeconds` of its spec."""
EVICTED_FOR_USE = "EvictedForUse"
"""The kubelet evicted its pod for what that used itself; the observation's message says what."""
NEVER_RAN = "NeverRan"
"""The process ran, and said that the callable it was to run couldn't be; its exit code says why."""
OOM_KILLED = "OOMKilled"
"""Container reason of the kubelet: the kernel ended it for its memory."""
KILL_CODES = (137, 143)
"""Exit codes of SIGKILL and SIGTERM, by which containers end whose pod is deleted; in ascending order."""
START_FAILED = "StartFailed"
"""The process could not be started at all; the observation's message says why."""


class HostPhase(StrEnum):
    """How far one host is, and how it ended: as of a pod that is never restarted in place."""

    PENDING = "Pending"
    """It doesn't exist, or another container of its pod runs and its own doesn't yet."""
    STARTING = "Starting"
    """Its pod exists and has started nothing yet."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    """It ended badly, and not by a plain deletion of its pod."""
    DELETED = "Deleted"
    """It failed since its pod was deleted: from outside, or as the peer of a host that failed."""
    GONE = "Gone"
    """It failed, and nothing that is left tells how."""


PENDING = frozenset({HostPhase.PENDING, HostPhase.STARTING})
FAILED = frozenset({HostPhase.FAILED, HostPhase.DELETED, HostPhase.GONE})


class EvidenceKind(StrEnum):
    """What took a host, or takes it; the last one takes all hosts of a gang."""

    TAKEN = "Taken"
    """Somebody or something wants its room or its node: an eviction, a preemption, a drain, a shutdown."""
    MISPLACED = "Misplaced"
    """JobSet removes it, since it stands in another slice's node pool: charged to no budget."""
    NODE_SILENT = "NodeSilent"
    """Its node has stopped reporting, or was given up for that."""
    NODE_LOW = "NodeLow"
    """Its node was short of what others used."""
    NODE_LEAVING = "NodeLeaving"
    """Its node is gone, or about to go."""
    CONTAINER_LOST = "ContainerLost"
    """Its node's runtime doesn't know its container any more."""
    END_UNSEEN = "EndUnseen"
    """Nobody has seen its container end, as after a reboot."""
    NOT_STARTED = "NotStarted"
    """Its node's runtime couldn't start what another might."""
    QUEUE_EVICTED = "QueueEvicted"
    """The gang's queue took back its admission."""


@dataclass(frozen=True)
class Evidence:
    """One sign: of what, the words to show, and since when it is there if that is known."""

    kind: EvidenceKind
    text: str
    at: datetime | None = None

    def __post_init__(self) -> None:
        _clean(self, "text")


@dataclass(frozen=True)
class Deletion:
    """When a host was asked to go, and when the time that it was given is up."""

    asked: datetime
    due: datetime


@dataclass(frozen=True)
class HostObservation:
    """One host of the gang: a pod, or a local process.

    `name` is None for a host that doesn't exist, or never did as far as anybody saw.
    `exit_code` is a shell's (128 + N for signal N). `reason` is the container's reason where it has one.
    Times are aware datetimes. `log_tail` holds the last lines of output of a host that failed.
    `evidence` says what takes or took the host away, None where there is no sign of that. `deletion` is set
    once its pod is being deleted, for any reason. `created_at` is when its pod was made. `node_pool` is
    that of its node, where somebody has looked. `outcome` is the sha256 of what its callable left for the
    client, as its process tells it.
    """

    slice_index: int
    host: int
    rank: int
    name: str | None
    phase: HostPhase
    node: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    log_tail: tuple[str, ...] = ()
    evidence: Evidence | None = None
    deletion: Deletion | None = None
    created_at: datetime | None = None
    node_pool: str | None = None
    outcome: str | None = None

    def __post_init__(self) -> None:
        _clean(self, "reason", "message")
        object.__setattr__(self, "log_tail", tuple(map(clean_text, self.log_tail)))

    @property
    def disruption(self) -> Evidence | None:
        """What took or takes the host away from outside, None where there is no sign of that."""
        return None if self.misplaced else self.evidence

    @property
    def misplaced(self) -> bool:
        """Whether JobSet removes the host, since it stands in another slice's node pool."""
        return self.evidence is not None and self.evidence.kind is EvidenceKind.MISPLACED

    @property
    def ended(self) -> bool:
        """Whether the host will never run again."""
        return self.failed or self.phase is HostPhase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether the host has ended badly."""
        return self.phase in FAILED

    @property
    def pending(self) -> bool:
        """Whether the host has not run yet."""
        return self.phase in PENDING


@dataclass(frozen=True)
class Suspension:
    """That somebody else than the FrayJob has the hosts removed, or not made yet.

    `evidence` says who and why, None where nothing tells. `requeued` is True where that is a queue, which
    will have them made again.
    """

    evidence: Evidence | None = None
    requeued: bool = False


@dataclass(frozen=True)
class Waiting:
    """Why hosts that should run don't yet, in one sentence.

    `vague` is True where the cause is left out, which may have been told before.
    """

    reason: Reason
    message: str
    vague: bool = False

    def __post_init__(self) -> None:
        _clean(self, "message")


@dataclass(frozen=True)
class GangObservation:
    """All hosts of the current attempt, at one moment; `waiting` where it is known why some are pending.

    A host that isn't there yet is pending too. Raises `ValueError` for no hosts at all: such a gang would
    count as one that has succeeded, and None stands for an attempt whose hosts don't exist.

    `settled` is False while something may make a host anew that has ended. `suspension` is None where there
    is none. `misnumbered` is True where hosts have, or would get, the number of another attempt. `held` is
    True until what makes them knows that the suspension is over, which it is since `released_at`.
    `created_at` is when what makes them was created. `failing_sidecar` says which sidecar ends again and
    again.
    """

    hosts: tuple[HostObservation, ...]
    waiting: Waiting | None = None
    settled: bool = True
    suspension: Suspension | None = None
    misnumbered: bool = False
    held: bool = False
    released_at: datetime | None = None
    created_at: datetime | None = None
    failing_sidecar: str | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("a gang has at least one host; None stands for an attempt without hosts")
        _clean(self, "failing_sidecar")

    @property
    def suspended(self) -> bool:
        """Whether somebody else than the FrayJob has the hosts removed, or not made yet."""
        return self.suspension is not None

    @property
    def requeued(self) -> bool:
        """Whether that is a queue, which will have them made again."""
        return self.suspension is not None and self.suspension.requeued

    @property
    def begun(self) -> bool:
        """Whether a host has run."""
        return any(not host.pending for host in self.hosts)

    @property
    def vacated(self) -> bool:
        """Whether there is no host, not even the last traces of one."""
        return all(host.name is None for host in self.hosts)

    @property
    def ended(self) -> bool:
        """Whether every host has ended, and none will be made anew."""
        return self.settled and all(host.ended for host in self.hosts)

    @property
    def succeeded(self) -> bool:
        """Whether every host has ended well."""
        return all(host.phase is HostPhase.SUCCEEDED for host in self.hosts)


def _clean(record: Any, *fields: str) -> None:
    """Make the text in some fields of a frozen record fit to be shown; those that are None stay so."""
    for field in fields:
        text = getattr(record, field)
        if text is not None:
            object.__setattr__(record, field, clean_text(text))
