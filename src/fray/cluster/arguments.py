"""What callers give to a cluster's methods, checked before anything is asked of it: for all backends.

Only what a value is, whether a workspace is there, and which ranks and attempts a job has. Backends say
whether there is such a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fray.errors import InvalidRequestError, LogsNotFoundError
from fray.plan.gang import derive_gang
from fray.types import JobId, JobRequest
from fray.types.checks import is_whole_number, show_value
from fray.wire.frayjob import FrayJob

__all__ = [
    "LogChoice",
    "WhenTaken",
    "check_job_id",
    "check_job_ids",
    "check_launch",
    "check_seconds",
    "check_whole_number",
    "find_workspace",
]

WhenTaken: TypeAlias = Literal["rename", "adopt", "refuse", "resume"]
"""What `launch` does where a job of that name is there. `rename`: give the new one another id. While the one
that is there hasn't finished, `adopt` returns its id and `refuse` raises; else both rename. `resume` is for
launchers that are jobs and begin anew: it returns the id of a living job of that name that the same parent
launched, but none that this object returned before; else, and outside of any job, it renames."""

SHOWN = 16
"""Ranks and attempts that an error names at most: the first ranks, the last attempts."""


def check_launch(request: Any, when_taken: Any) -> None:
    """Check what is to be launched, and what to do where its name is taken.

    Raises:
        InvalidRequestError: It is no request, or nothing that can be done.
    """
    if not isinstance(request, JobRequest):
        remedy = "Give a JobRequest, such as JobRequest('train', Entrypoint.from_callable(main))."
        raise InvalidRequestError("request", f"is of type {type(request).__name__}", remedy)
    if when_taken not in (known := get_args(WhenTaken)):
        remedy = f"Legal: {', '.join(known)}."
        raise InvalidRequestError("when_taken", f"is {show_value(when_taken)}", remedy)


def check_job_id(job_id: Any) -> JobId:
    """Return what may be the id of a job.

    Raises:
        InvalidRequestError: It is no text.
    """
    if not isinstance(job_id, str):
        remedy = "Give the id that launch() returned; a JobHandle has it as job_id."
        raise InvalidRequestError("job_id", f"is {show_value(job_id)}, no text", remedy)
    return JobId(job_id)


def check_job_ids(job_ids: Any) -> list[JobId]:
    """Return one id or several as a list.

    Raises:
        InvalidRequestError: There is one that is no text, or they can't be listed.
    """
    # A text is a sequence of texts as well, bytes are one of numbers.
    if isinstance(job_ids, str | bytes) or not isinstance(job_ids, Iterable):
        return [check_job_id(job_ids)]
    return [check_job_id(job_id) for job_id in job_ids]


def check_seconds(field: str, value: Any) -> None:
    """Check a time limit.

    Raises:
        InvalidRequestError: It is neither None nor a number of seconds from 0.
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        return
    raise InvalidRequestError(field, f"is {show_value(value)}", "Give seconds from 0, or None.")


def check_whole_number(field: str, value: Any) -> None:
    """Check a choice among hosts, attempts or lines.

    Raises:
        InvalidRequestError: It is neither None nor a whole number.
    """
    if value is not None and not is_whole_number(value):
        raise InvalidRequestError(field, f"is {show_value(value)}", "Give a whole number, or None for all.")


def find_workspace(directory: str | Path, *, field: str) -> Path:
    """Return the directory of a workspace, absolute; `field` is what names it.

    Raises:
        InvalidRequestError: It is no directory.
    """
    path = Path(directory).expanduser().absolute()
    if not path.is_dir():
        where = "it is looked for in the folder of the job file, or else in the current directory"
        raise InvalidRequestError(field, f"{path} is no directory", f"Name one that is there: {where}.")
    return path


@dataclass(frozen=True)
class LogChoice:
    """Which lines of a job are read; `Cluster.logs` says what each field means."""

    follow: bool = False
    rank: int | Collection[int] | None = None
    attempt: int | None = None
    tail: int | None = None
    unfinished: bool = False

    def find_ranks(self, job: FrayJob, kept: Sequence[int]) -> frozenset[int]:
        """Return the ranks that are meant; check that the job has them, and `kept` the attempt.

        Raises:
            InvalidRequestError: One is no whole number.
            LogsNotFoundError: It has no such rank or attempt.
        """
        check_whole_number("attempt", self.attempt)
        name, hosts = JobId(job.metadata.name), derive_gang(job.spec).hosts
        ranks = list(self.rank) if isinstance(self.rank, Set | list | tuple | range) else [self.rank]
        for each in ranks:
            check_whole_number("rank", each)
        wanted = frozenset(each for each in ranks if isinstance(each, int))
        for each in wanted:
            if not 0 <= each < hosts:
                raise LogsNotFoundError(name, f"rank {each}", tuple(map(str, range(min(hosts, SHOWN)))))
        if self.attempt is not None and self.attempt not in kept:
            known = tuple(map(str, kept[-SHOWN:]))
            raise LogsNotFoundError(name, f"logs of attempt {self.attempt}", known)
        return frozenset(range(hosts)) if self.rank is None else wanted
