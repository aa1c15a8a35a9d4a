"""The job's own code ended badly: its author looks at the logs."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.base import FrayError

__all__ = [
    "JobError",
    "JobFailedError",
    "JobStoppedError",
]


@dataclass(eq=False)
class JobError(FrayError):
    """A job that ended in anything but success."""

    name: str
    reason: str
    explanation: str
    exit_code: int = 1

    @property
    def message(self) -> str:
        """The job, the reason and the first cause."""
        return f"job {self.name!r} {self.verb}: {self.reason}: {self.explanation}"

    @property
    def verb(self) -> str:
        """How the job ended, as a verb."""
        return "ended"

    @property
    def next_step(self) -> str:
        """Where to look."""
        return f"Read `fray logs {self.name}` and `fray status {self.name}`."


@dataclass(eq=False)
class JobFailedError(JobError):
    """A job whose last attempt failed with no retry left."""

    @property
    def verb(self) -> str:
        """How the job ended, as a verb."""
        return "failed"


@dataclass(eq=False)
class JobStoppedError(JobError):
    """A job that somebody stopped."""

    @property
    def verb(self) -> str:
        """How the job ended, as a verb."""
        return "was stopped"
