"""The surroundings are wrong: the administrator of the machine or cluster acts."""

from __future__ import annotations

from fray.errors.base import FrayError

__all__ = [
    "MachineMismatchError",
    "OpenFilesError",
    "OutputError",
    "PackageMissingError",
    "PortsExhaustedError",
    "SettingError",
    "StateDirectoryError",
    "SurroundingsError",
]


class SurroundingsError(FrayError):
    """The machine or the cluster doesn't let Fray do what was asked; the request itself may be right."""


class SettingError(SurroundingsError):
    """An environment variable that sets something about Fray holds what it can't mean."""

    message = "environment variable {variable} {problem}"
    next_step = "Correct {variable} and try again."

    variable: str
    problem: str


class StateDirectoryError(SurroundingsError):
    """The directory that holds the local backend's state can't be used."""

    message = "state directory {path}: {problem}"
    next_step = "Make it writable, or choose another with FRAY_STATE_DIR."

    path: str
    problem: str


class MachineMismatchError(SurroundingsError):
    """A local cluster was sent to another machine than the one whose jobs it has."""

    message = "a local cluster of the machine {machine!r} can't be used on {here!r}"
    next_step = "Don't send it along: current_cluster() is where a job's own jobs can run."

    machine: str
    here: str


class OpenFilesError(SurroundingsError):
    """A local gang has so many hosts that the shell's limit of open files is too low for it."""

    message = "a gang of {hosts} hosts needs {needed} open files; {allowed} are allowed here"
    next_step = "Raise the limit with `ulimit -n {needed}` and try again, or ask for fewer hosts."

    hosts: int
    needed: int
    allowed: int


class PackageMissingError(SurroundingsError, ModuleNotFoundError):
    """A part of Fray needs a package that isn't installed here: of an `extra` of Fray, or one that it brings.

    Pods of callables whose image has no Fray get a copy of it without the packages that it depends on.
    """

    message = "{part} needs {package}, which isn't installed here"
    name = "fray"
    """The package to install, for readers of any ModuleNotFoundError."""

    part: str
    package: str
    extra: str = ""

    @property
    def next_step(self) -> str:
        """What brings it."""
        if self.extra:
            return f"Install it: `pip install 'fray[{self.extra}]'`."
        return "Install Fray itself, which brings it: name fray in pip_packages, or use an image that has it."


class OutputError(SurroundingsError):
    """What a running job prints can't be shown any more; the job was ended."""

    message = "the output of job {name!r} can't be written: {problem}"
    next_step = "The job was stopped. What it had printed is kept: `fray logs {name}`."

    name: str
    problem: str


class PortsExhaustedError(SurroundingsError):
    """No free TCP port is left in the range that the local backend may use."""

    message = "no free TCP port between {first} and {last} on the loopback interface"
    next_step = "End other local jobs (`fray list`, `fray stop NAME`) and try again."

    first: int
    last: int
