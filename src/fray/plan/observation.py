"""What was seen of an attempt's hosts: the input of every decision.

The operator fills these from pods, the local backend from processes; nothing downstream knows which.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fray.vocabulary import Reason

__all__ = ["OOM_KILLED", "START_FAILED", "GangObservation", "HostObservation", "HostPhase", "Waiting"]

OOM_KILLED = "OOMKilled"
"""Container reason of the kubelet: the kernel ended it for its memory."""
START_FAILED = "StartFailed"
"""The process could not be started at all; the observation's message says why."""


class HostPhase(StrEnum):
    """State of one host, as of a pod that is never restarted in place."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class HostObservation:
    """One host of the gang: a pod, or a local process.

    `exit_code` is a shell's (128 + N for signal N). `reason` is the container's reason where it has one.
    Times are aware datetimes. `log_tail` holds the last lines of output of a host that failed.
    """

    slice_index: int
    host: int
    rank: int
    name: str
    phase: HostPhase
    node: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    log_tail: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the host will never run again."""
        return self.phase in (HostPhase.SUCCEEDED, HostPhase.FAILED)


@dataclass(frozen=True)
class Waiting:
    """Why hosts that should run don't yet, in one sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class GangObservation:
    """All hosts of the current attempt, at one moment; `waiting` where it is known why some are pending.

    A host that isn't there yet is pending too. Raises `ValueError` for no hosts at all: such a gang would
    count as one that has succeeded, and None stands for an attempt whose hosts don't exist.
    """

    hosts: tuple[HostObservation, ...]
    waiting: Waiting | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("a gang has at least one host; None stands for an attempt without hosts")

    @property
    def ended(self) -> bool:
        """Whether every host has ended."""
        return all(host.ended for host in self.hosts)

    @property
    def succeeded(self) -> bool:
        """Whether every host has ended well."""
        return all(host.phase is HostPhase.SUCCEEDED for host in self.hosts)

    def count(self, phase: HostPhase) -> int:
        """Return the number of hosts in a phase."""
        return sum(host.phase is phase for host in self.hosts)
