"""The surroundings are wrong: whoever runs the machine or the cluster acts."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.base import FrayError

__all__ = [
    "JobStillRunningError",
    "MachineMismatchError",
    "OpenFilesError",
    "OutputError",
    "PortsExhaustedError",
    "SettingError",
    "StateDirectoryError",
    "SurroundingsError",
]


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
class MachineMismatchError(SurroundingsError):
    """A local cluster was sent to another machine than the one whose jobs it has."""

    machine: str
    here: str

    @property
    def message(self) -> str:
        """Whose it is, and where it was opened."""
        return f"a local cluster of the machine {self.machine!r} can't be used on {self.here!r}"

    @property
    def next_step(self) -> str:
        """What to use instead."""
        return "Don't send it along: current_cluster() is where a job's own jobs can run."


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
