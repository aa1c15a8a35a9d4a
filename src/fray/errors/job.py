"""The job's own code ended badly: its author looks at the logs."""

from __future__ import annotations

from typing import ClassVar

from fray.errors.base import FrayError

__all__ = [
    "JobError",
    "JobFailedError",
    "JobStoppedError",
    "JobsFailedError",
    "PreemptedTooOftenError",
    "WaitTimeoutError",
]


class JobError(FrayError, RuntimeError):
    """A job that ended in anything but success."""

    message = "job {name!r} {verb}: {reason}: {explanation}"
    next_step = "Read `fray logs {name}` and `fray status {name}`."
    verb: ClassVar[str] = "ended"
    status: ClassVar[str] = "failed"
    """`failed` or `stopped`, as `JobStatus` has it."""

    name: str
    reason: str
    explanation: str = "nothing tells why"
    exit_code: int = 1

    @property
    def job_id(self) -> str:
        """The same as `name`, which is the job's id."""
        return self.name

    @property
    def failed_status(self) -> str:
        """The same as `status`."""
        return self.status


class JobFailedError(JobError):
    """A job whose last attempt failed with no retry left."""

    verb = "failed"


class PreemptedTooOftenError(JobFailedError):
    """A gang call that lost its nodes more often than its budget of preemptions allows."""

    message = "TPU job was preempted too many times: job {name!r}: {explanation}"
    next_step = "Raise max_retries_preemption, or use nodes that aren't spot. `fray status {name}`."


class JobStoppedError(JobError):
    """A job that somebody stopped."""

    verb = "was stopped"
    status = "stopped"


class JobsFailedError(FrayError, RuntimeError):
    """Several of the jobs that were waited for ended in anything but success.

    `failures` are their ids, each with its first cause.
    """

    failures: tuple[tuple[str, str], ...]

    @property
    def message(self) -> str:
        """Each job with its first cause, one a line."""
        lines = "".join(f"\n  {name}: {explanation}" for name, explanation in self.failures)
        return f"{len(self.failures)} jobs did not succeed:{lines}"

    @property
    def next_step(self) -> str:
        """Where to look first."""
        name = self.failures[0][0]
        return f"Read `fray logs {name}` and `fray status {name}`."


class WaitTimeoutError(FrayError, TimeoutError):
    """Jobs have not finished within the time that they were waited for; they run on."""

    unfinished: tuple[str, ...]
    seconds: float

    @property
    def message(self) -> str:
        """How long was waited, and for what."""
        shown = ", ".join(self.unfinished[:8]) + (", ..." if len(self.unfinished) > 8 else "")
        return f"not finished after {self.seconds} s: {shown}"

    @property
    def next_step(self) -> str:
        """What can be done about it."""
        stop = f"fray stop {self.unfinished[0]}" if len(self.unfinished) == 1 else "fray stop NAME"
        return f"Wait longer, or end them: `{stop}`, in Python terminate()."
