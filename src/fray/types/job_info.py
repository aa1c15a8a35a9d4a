"""How a job stands and what its hosts print, as clients get it: the same words for every backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

__all__ = ["JobId", "JobInfo", "JobStatus", "LogLine", "MonitoredJob", "TaskStatus"]

JobId = NewType("JobId", str)
"""What a cluster calls a job; on Kubernetes the FrayJob's name."""


class JobStatus(StrEnum):
    """Where a job stands; each compares equal to its text."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @staticmethod
    def finished(status: JobStatus) -> bool:
        """Return whether a job of this status has ended for good."""
        return status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


@dataclass(frozen=True)
class TaskStatus:
    """One replica of a job: a TPU slice, a GPU host or a copy."""

    status: JobStatus
    error_message: str | None = None


@dataclass(frozen=True)
class JobInfo:
    """How a job stands.

    Attributes:
        job_id: What the cluster calls it.
        status: Where it stands.
        tasks: Its replicas, by index.
        name: What its author called it.
        error_message: Why it failed or was stopped: the first cause; None otherwise.
        start_time: When its first attempt started, in seconds since the epoch; None before.
        end_time: When it ended, in the same; None before.
        reason: One stable word for why it stands so, such as NonZeroExit or InsufficientCapacity.
        pending_reason: One sentence on why its hosts don't run, while it is pending.
        parent: The job that launched it; None for one that no job did.
        root: The job at the top of its tree: its parent, or that one's root; None for the top itself.
        exit_code: Exit code for a shell: 0 for success, the code of the host that failed first, 124
            for a time limit, 143 where it was stopped; None before the end.
    """

    job_id: JobId
    status: JobStatus
    tasks: tuple[TaskStatus, ...]
    name: str
    error_message: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    reason: str | None = None
    pending_reason: str | None = None
    parent: JobId | None = None
    root: JobId | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class MonitoredJob(JobInfo):
    """How a job stood at the end of `Cluster.monitor`; iterating gives the lines that it logged."""

    lines: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)


@dataclass(frozen=True)
class LogLine:
    """One line of a job's output; as text it begins with its place: `[slice/host attempt] `.

    Attributes:
        job_id: The job.
        attempt: Number of the attempt, from 1.
        rank: The host within the gang, from 0.
        slice_index: Its slice, from 0; the only one of GPU and CPU gangs.
        host: The host within its slice, from 0.
        text: What it printed, without the newline; bytes that are no UTF-8 are replaced. A line of more than
            1 MiB comes in several, all but the last with `goes_on`.
        at: When it was printed, as far as the backend knows.
        gap: Whether nothing printed this line: it says that, and why, lines of this host are missing here.
        goes_on: Whether the next line of this host is the rest of this one.
        unfinished: Whether the program is still writing this line over and over, as progress bars do: the
            next line of this host takes its place.
    """

    job_id: JobId
    attempt: int
    rank: int
    slice_index: int
    host: int
    text: str
    at: datetime | None = None
    gap: bool = False
    goes_on: bool = False
    unfinished: bool = False

    def __str__(self) -> str:
        return f"[{self.slice_index}/{self.host} {self.attempt}] {self.text}"
