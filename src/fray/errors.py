"""Every error Fray raises on purpose, grouped by who must act.

Callers catch a group (`RequestError`: fix what you asked for; `SurroundingsError`: fix the machine or
the cluster; `JobError`: look at the job's own code) or one class, and read its fields instead of
parsing text. Each error is a dataclass: it says what happened, what to do next, holds its data and
survives pickling. Nothing here may import another part of Fray.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = [
    "AcceleratorShapeError",
    "FieldError",
    "FrayError",
    "InvalidJobError",
    "JobError",
    "JobFailedError",
    "JobFileError",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRunningError",
    "JobStillRunningError",
    "JobStoppedError",
    "LogsNotFoundError",
    "OpenFilesError",
    "OutputError",
    "PortsExhaustedError",
    "RequestError",
    "SettingError",
    "StateDirectoryError",
    "SurroundingsError",
    "UnknownAcceleratorError",
    "UnsupportedFeatureError",
]


@dataclass(eq=False)
class FrayError(Exception):
    """The root of all errors of Fray: `str()` is the message followed by the next step."""

    @property
    def message(self) -> str:
        """What happened, in one sentence or a short list."""
        return type(self).__name__

    @property
    def next_step(self) -> str:
        """What the reader should do now; empty where the message already says it."""
        return ""

    def __str__(self) -> str:
        return f"{self.message}\n{self.next_step}" if self.next_step else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


# --- the request is wrong: its author acts -----------------------------------------------------------


@dataclass(eq=False)
class RequestError(FrayError):
    """What was asked for can't be done as written; trying again without a change won't help."""


@dataclass(frozen=True)
class FieldError:
    """One field of a manifest that is wrong.

    `path` is the API server's spelling (`spec.ports[0].port`); `message` says what is wrong and what
    is legal.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(eq=False)
class InvalidJobError(RequestError):
    """A FrayJob that the API server would refuse, with every field that is wrong."""

    name: str
    problems: tuple[FieldError, ...]

    @property
    def message(self) -> str:
        """The fields that are wrong, one a line."""
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"FrayJob {self.name!r} is invalid:{lines}"

    @property
    def next_step(self) -> str:
        """Points at the fields above."""
        return "Correct these fields and try again."


@dataclass(eq=False)
class JobFileError(RequestError):
    """A job file that can't be read, or doesn't hold exactly one FrayJob."""

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The file and what is wrong with it."""
        return f"{self.path}: {self.problem}"


@dataclass(eq=False)
class UnknownAcceleratorError(RequestError):
    """A TPU or GPU name that no GKE machine has, with the nearest legal ones."""

    kind: str
    name: str
    nearest: tuple[str, ...]

    @property
    def message(self) -> str:
        """The name and the nearest legal ones."""
        return f"unknown {self.kind} type {self.name!r}; nearest legal: {', '.join(self.nearest)}"


@dataclass(eq=False)
class AcceleratorShapeError(RequestError):
    """A topology, chip or GPU count that the named accelerator doesn't come in.

    `field` is the name of the offending field (`topology`, `chipsPerHost`, `count`).
    """

    type: str
    field: str
    value: str
    legal: tuple[str, ...]

    @property
    def message(self) -> str:
        """The field, its value and the legal ones."""
        return f"{self.type} has no {self.field} {self.value}; legal: {', '.join(self.legal)}"


@dataclass(eq=False)
class UnsupportedFeatureError(RequestError):
    """A legal FrayJob that asks for something this backend can't do."""

    feature: str
    reason: str
    alternative: str

    @property
    def message(self) -> str:
        """What isn't supported, and why."""
        return f"{self.feature} is not supported here: {self.reason}"

    @property
    def next_step(self) -> str:
        """What to use instead."""
        return self.alternative


@dataclass(eq=False)
class JobNotFoundError(RequestError, KeyError):
    """No job of this name is known where it was looked for."""

    name: str
    where: str
    known: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The name and where it was looked for."""
        return f"no job {self.name!r} in {self.where}"

    @property
    def next_step(self) -> str:
        """The names that do exist."""
        if not self.known:
            return "There are no jobs; start one with `fray run -f FILE`."
        return f"Known jobs: {', '.join(self.known)}."

    # KeyError quotes its argument; the message must read the same as that of the other errors.
    __str__ = FrayError.__str__


@dataclass(eq=False)
class JobRunningError(RequestError):
    """A job of this name is already running."""

    name: str
    pid: int

    @property
    def message(self) -> str:
        """The name and the process that runs it."""
        return f"job {self.name!r} is already running (process {self.pid})"

    @property
    def next_step(self) -> str:
        """How to look at it or end it."""
        return f"Follow it with `fray logs -f {self.name}`, or end it with `fray stop {self.name}`."


@dataclass(eq=False)
class JobNotRunningError(RequestError):
    """A job was to be stopped that has already ended."""

    name: str
    phase: str

    @property
    def message(self) -> str:
        """The name and how it ended."""
        return f"job {self.name!r} is not running (it is {self.phase})"


@dataclass(eq=False)
class LogsNotFoundError(RequestError):
    """Logs were asked for of an attempt or a host that a job doesn't have."""

    name: str
    what: str
    known: tuple[str, ...]

    @property
    def message(self) -> str:
        """The job and what it doesn't have."""
        return f"job {self.name!r} has no {self.what}"

    @property
    def next_step(self) -> str:
        """What it does have."""
        return f"There are: {', '.join(self.known)}." if self.known else "Nothing was started yet."


# --- the surroundings are wrong: whoever runs the machine or the cluster acts --------------------------


@dataclass(eq=False)
class SurroundingsError(FrayError):
    """The machine or the cluster doesn't let Fray do what was asked; the request itself may be right."""


@dataclass(eq=False)
class SettingError(SurroundingsError):
    """An environment variable that sets something about Fray holds what it can't mean."""

    variable: str
    problem: str

    @property
    def message(self) -> str:
        """The variable and what is wrong with it."""
        return f"environment variable {self.variable} {self.problem}"

    @property
    def next_step(self) -> str:
        """How to get on."""
        return f"Correct {self.variable} and try again."


@dataclass(eq=False)
class StateDirectoryError(SurroundingsError):
    """The directory that holds the local backend's state can't be used."""

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The directory and what is wrong with it."""
        return f"state directory {self.path}: {self.problem}"

    @property
    def next_step(self) -> str:
        """How to use another directory."""
        return "Make it writable, or choose another with FRAY_STATE_DIR."


@dataclass(eq=False)
class OpenFilesError(SurroundingsError):
    """A local gang has so many hosts that the shell's limit of open files is too low for it."""

    hosts: int
    needed: int
    allowed: int

    @property
    def message(self) -> str:
        """The size of the gang, what it needs and what is allowed."""
        return f"a gang of {self.hosts} hosts needs {self.needed} open files; {self.allowed} are allowed here"

    @property
    def next_step(self) -> str:
        """How to allow more."""
        return f"Raise the limit with `ulimit -n {self.needed}` and try again, or ask for fewer hosts."


@dataclass(eq=False)
class OutputError(SurroundingsError):
    """What a running job prints can't be shown any more; the job was ended."""

    name: str
    problem: str

    @property
    def message(self) -> str:
        """The job and the system's reason."""
        return f"the output of job {self.name!r} can't be written: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where the output is."""
        return f"The job was stopped. What it had printed is kept: `fray logs {self.name}`."


@dataclass(eq=False)
class PortsExhaustedError(SurroundingsError):
    """No free TCP port is left in the range that the local backend may use."""

    first: int
    last: int

    @property
    def message(self) -> str:
        """The range that was tried."""
        return f"no free TCP port between {self.first} and {self.last} on the loopback interface"

    @property
    def next_step(self) -> str:
        """How to free some."""
        return "End other local jobs (`fray list`, `fray stop NAME`) and try again."


@dataclass(eq=False)
class JobStillRunningError(SurroundingsError):
    """A job was asked to stop and hasn't ended in time."""

    name: str
    pid: int

    @property
    def message(self) -> str:
        """The name and the process that runs it."""
        return f"job {self.name!r} is still running (process {self.pid}); it was asked to stop"

    @property
    def next_step(self) -> str:
        """How to end it without its help."""
        return f"Its processes may need longer to end; `kill -9 {self.pid}` ends them within seconds."


# --- the job's own code ended badly: its author looks at the logs --------------------------------------


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
