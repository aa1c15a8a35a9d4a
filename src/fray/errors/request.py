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
    "CommandNotRunError",
    "FieldError",
    "HostNotRunningError",
    "InvalidJobError",
    "InvalidRequestError",
    "InvalidTypeError",
    "JobDeletedError",
    "JobExistsError",
    "JobFileError",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRunningError",
    "LogsNotFoundError",
    "NameWithdrawnError",
    "PoolNotShownError",
    "RequestError",
    "UnknownAcceleratorError",
    "UnsupportedFeatureError",
]

NAMES_SHOWN = 5
"""How many names of jobs an error tells."""


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


class InvalidJobError(RequestError):
    """A FrayJob, or an object of another `kind`, that the API server would refuse, with all its problems."""

    message = "{kind} {name!r} is invalid:{problems:lines}"
    next_step = "Correct these fields and try again."

    name: str
    problems: tuple[FieldError, ...]
    kind: str = "FrayJob"


class InvalidRequestError(RequestError, ValueError):
    """A part of a JobRequest means nothing as it was given; `field` is where, `remedy` what to write."""

    message = "{field}: {problem}"
    next_step = "{remedy}"

    field: str
    problem: str
    remedy: str


class InvalidTypeError(InvalidRequestError, TypeError):
    """A part of a request is of another type than earlier APIs took; programs of theirs catch TypeError."""


class ClusterSpecError(RequestError, ValueError):
    """A cluster spec that can't be read: an unknown backend or key, a key given twice, or a bad value."""

    message = "Unknown cluster spec: {spec!r}: {problem}"
    next_step = "{remedy}"

    spec: str
    problem: str
    remedy: str


class ClusterUnavailableError(RequestError):
    """A cluster spec names a backend that can be named and doesn't exist in this version of Fray."""

    message = "cluster backend {backend!r} is not available: {reason}"
    next_step = "{alternative}"

    backend: str
    reason: str
    alternative: str


class NameWithdrawnError(RequestError, ImportError):
    """A program imports a name of an earlier API that nothing stands for any more."""

    message = "{earlier} was part of an earlier API and doesn't exist any more"
    next_step = "{instead}"

    earlier: str
    instead: str


class JobFileError(RequestError):
    """A job file that can't be read, or doesn't hold exactly one FrayJob."""

    message = "{path}: {problem}"
    next_step = "Correct that; `fray explain -f FILE` checks a file without starting anything."

    path: str
    problem: str


class UnknownAcceleratorError(RequestError, ValueError):
    """A TPU or GPU name that no GKE machine has, with the nearest legal ones."""

    message = "unknown {kind} type {name!r}"
    next_step = "Use one that exists; nearest legal: {nearest:list}."

    kind: str
    name: str
    nearest: tuple[str, ...]


class AcceleratorShapeError(RequestError, ValueError):
    """A topology, chip or GPU count that the named accelerator doesn't come in.

    `field` is the name of the offending field (`topology`, `chipsPerHost`, `count`).
    """

    message = "{type} has no {field} {value}"
    next_step = "Use one that it has; legal: {legal:list}."

    type: str
    field: str
    value: str
    legal: tuple[str, ...]


class UnsupportedFeatureError(RequestError):
    """A legal request for something that this backend, or this kind of context, can't do.

    `feature` is what can't be done, or the path of the field that asks for it; `detail` is what that holds.
    """

    message = "{feature}{detail:? } is not supported here: {reason}"
    next_step = "{alternative}"

    feature: str
    reason: str
    alternative: str
    detail: str = ""


class JobNotFoundError(RequestError, KeyError):
    """No job of this name is known where it was looked for.

    `known` are some of the names that are, `others` is how many more there are, None where
    only that there may be more is known.
    """

    message = "no job {name!r} in {where}"

    name: str
    where: str
    known: tuple[str, ...] = ()
    others: int | None = 0

    @classmethod
    def among(cls, name: str, where: str, names: Sequence[str], *, all_read: bool = True) -> Self:
        """Return the error for a name that isn't among `names`: it tells those like it, or the first.

        Without `all_read` there may be more than `names`.
        """
        known = difflib.get_close_matches(name, names, n=NAMES_SHOWN) or names[:NAMES_SHOWN]
        return cls(name, where, tuple(known), len(names) - len(known) if all_read else None)

    @property
    def next_step(self) -> str:
        """The names that do exist."""
        if not self.known:
            return "There are no jobs; start one with `fray run -f FILE`."
        count = "" if self.others is None else f"{self.others} "
        others = "" if self.others == 0 else f", and {count}more (`fray list`)"
        return f"Known jobs: {', '.join(self.known)}{others}."


class JobDeletedError(JobNotFoundError):
    """A job was deleted before it had finished, while it was waited for."""

    message = "job {name!r} in {where} was deleted before it had finished"

    @property
    def next_step(self) -> str:
        """How to have it again, and how to end a job that shall be kept."""
        stop = f"`fray stop {self.name}`, in Python terminate()"
        return f"Launch it again. To end a job and keep its status, don't delete it: {stop}."


class JobExistsError(RequestError):
    """A job was launched under a name that another one has, by a caller who wanted no other name."""

    message = "there is a job {name!r} already"
    next_step = (
        "Choose another name; `fray logs -f {name}` follows the one that is there, `fray stop {name}` ends "
        'it, and in Python launch(..., when_taken="adopt") takes it.'
    )

    name: str

    @property
    def job_name(self) -> str:
        """The same as `name`."""
        return self.name


class JobRunningError(RequestError):
    """A job of this name is already running."""

    message = "job {name!r} is already running (process {pid})"
    next_step = "Follow it with `fray logs -f {name}`, or end it with `fray stop {name}`."

    name: str
    pid: int


class JobNotRunningError(RequestError):
    """A job was to be stopped that has already ended."""

    message = "job {name!r} is not running (it is {phase})"
    next_step = "There is nothing to stop; `fray status {name}` tells how it ended."

    name: str
    phase: str


class HostNotRunningError(RequestError):
    """Something was asked of a running host of a job, and that host doesn't run."""

    message = "rank {rank} of job {name!r} doesn't run: {problem}"
    next_step = "`fray status {name}` shows the job, `fray logs {name}` what it printed."

    name: str
    rank: int
    problem: str


class PoolNotShownError(RequestError):
    """A job has no pool that could be shown, or the head of its pool doesn't answer."""

    message = "the pool of job {name!r} can't be shown: {problem}"
    next_step = "`fray status {name}` shows the job; docs/workers.md says which jobs have a pool."

    name: str
    problem: str


class CommandNotRunError(RequestError):
    """The container of a running host couldn't run a command."""

    message = "rank {rank} of job {name!r} can't run {program!r}: {problem}"
    next_step = "Name a program that the job's image has; a line of a shell needs `sh -c`."

    name: str
    rank: int
    program: str
    problem: str


class LogsNotFoundError(RequestError):
    """Logs were asked for of an attempt or a host that a job doesn't have."""

    message = "job {name!r} has no {what}"

    name: str
    what: str
    known: tuple[str, ...]

    @property
    def next_step(self) -> str:
        """What it does have."""
        return f"There are: {', '.join(self.known)}." if self.known else "Nothing was started yet."
