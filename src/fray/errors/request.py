"""The request is wrong: its author acts. Trying again without a change won't help."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fray.errors.base import FrayError

__all__ = [
    "AcceleratorShapeError",
    "ClusterSpecError",
    "ClusterUnavailableError",
    "FieldError",
    "InvalidJobError",
    "InvalidRequestError",
    "JobDeletedError",
    "JobExistsError",
    "JobFileError",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRunningError",
    "LogsNotFoundError",
    "RequestError",
    "UnknownAcceleratorError",
    "UnsupportedFeatureError",
]

NAMES_TOLD = 5
"""How many names of jobs an error tells."""


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
class InvalidRequestError(RequestError, ValueError):
    """A part of a JobRequest means nothing as it was given; `field` is where, `remedy` what to write."""

    field: str
    problem: str
    remedy: str

    @property
    def message(self) -> str:
        """The field and what is wrong with it."""
        return f"{self.field}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to write instead."""
        return self.remedy


@dataclass(eq=False)
class ClusterSpecError(RequestError, ValueError):
    """A cluster spec that can't be read: an unknown backend or key, a key given twice, or a bad value."""

    spec: str
    problem: str
    remedy: str

    @property
    def message(self) -> str:
        """The spec and what is wrong with it."""
        return f"Unknown cluster spec: {self.spec!r}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What is legal, and what may have been meant."""
        return self.remedy


@dataclass(eq=False)
class ClusterUnavailableError(RequestError):
    """A cluster spec names a backend that can be named and doesn't exist in this version of Fray."""

    backend: str
    reason: str
    alternative: str

    @property
    def message(self) -> str:
        """The backend and why it isn't there."""
        return f"cluster backend {self.backend!r} is not available: {self.reason}"

    @property
    def next_step(self) -> str:
        """What to use instead."""
        return self.alternative


@dataclass(eq=False)
class JobFileError(RequestError):
    """A job file that can't be read, or doesn't hold exactly one FrayJob."""

    path: str
    problem: str

    @property
    def message(self) -> str:
        """The file and what is wrong with it."""
        return f"{self.path}: {self.problem}"

    @property
    def next_step(self) -> str:
        """How to find out what it takes."""
        return "Correct that; `fray explain -f FILE` checks a file without starting anything."


@dataclass(eq=False)
class UnknownAcceleratorError(RequestError, ValueError):
    """A TPU or GPU name that no GKE machine has, with the nearest legal ones."""

    kind: str
    name: str
    nearest: tuple[str, ...]

    @property
    def message(self) -> str:
        """The name."""
        return f"unknown {self.kind} type {self.name!r}"

    @property
    def next_step(self) -> str:
        """The nearest legal names."""
        return f"Use one that exists; nearest legal: {', '.join(self.nearest)}."


@dataclass(eq=False)
class AcceleratorShapeError(RequestError, ValueError):
    """A topology, chip or GPU count that the named accelerator doesn't come in.

    `field` is the name of the offending field (`topology`, `chipsPerHost`, `count`).
    """

    type: str
    field: str
    value: str
    legal: tuple[str, ...]

    @property
    def message(self) -> str:
        """The field and its value."""
        return f"{self.type} has no {self.field} {self.value}"

    @property
    def next_step(self) -> str:
        """The legal values."""
        return f"Use one that it has; legal: {', '.join(self.legal)}."


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
    """No job of this name is known where it was looked for.

    `known` are some of the names that are, `others` is how many more there are, None where
    only that there may be more is known.
    """

    name: str
    where: str
    known: tuple[str, ...] = ()
    others: int | None = 0

    @classmethod
    def among(cls, name: str, where: str, names: Sequence[str], *, all_read: bool = True) -> Self:
        """Return the error for a name that isn't among `names`: it tells those like it, or the first.

        Without `all_read` there may be more than `names`.
        """
        known = difflib.get_close_matches(name, names, n=NAMES_TOLD) or names[:NAMES_TOLD]
        return cls(name, where, tuple(known), len(names) - len(known) if all_read else None)

    @property
    def message(self) -> str:
        """The name and where it was looked for."""
        return f"no job {self.name!r} in {self.where}"

    @property
    def next_step(self) -> str:
        """The names that do exist."""
        if not self.known:
            return "There are no jobs; start one with `fray run -f FILE`."
        count = "" if self.others is None else f"{self.others} "
        others = "" if self.others == 0 else f", and {count}more (`fray list`)"
        return f"Known jobs: {', '.join(self.known)}{others}."

    # KeyError quotes its argument; the message must read the same as that of the other errors.
    __str__ = FrayError.__str__


@dataclass(eq=False)
class JobDeletedError(JobNotFoundError):
    """A job was deleted before it had finished, while it was waited for."""

    @property
    def message(self) -> str:
        """The name and where it was."""
        return f"job {self.name!r} in {self.where} was deleted before it had finished"

    @property
    def next_step(self) -> str:
        """How to end a job without losing its story."""
        return (
            f"Launch it again. To end a job and keep its status, don't delete it: `fray stop {self.name}`, "
            "in Python terminate()."
        )


@dataclass(eq=False)
class JobExistsError(RequestError):
    """A job was launched under a name that another one has, by a caller who wanted no other name."""

    name: str

    @property
    def job_name(self) -> str:
        """The same as `name`."""
        return self.name

    @property
    def message(self) -> str:
        """The name."""
        return f"there is a job {self.name!r} already"

    @property
    def next_step(self) -> str:
        """How to get on, on a command line and in Python."""
        there = f"`fray logs -f {self.name}` follows the one that is there, `fray stop {self.name}` ends it"
        return f'Choose another name; {there}, and in Python launch(..., when_taken="adopt") takes it.'


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

    @property
    def next_step(self) -> str:
        """Where its end is told."""
        return f"There is nothing to stop; `fray status {self.name}` tells how it ended."


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
