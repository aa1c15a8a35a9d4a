"""Callables as local processes: where a payload lies, and where a process leaves what became of it.

    <job>/payload/payload-000                      as Secrets are mounted into a pod
    <job>/logs/attempt-1/rank-0.ending             the process's own words, as in a termination message
    <job>/logs/attempt-1/rank-0.outcome            the pickled value or exception

The process is the same as in a pod, `fray.runtime.callable_runner`; here are only its arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from fray.cluster.local.store import JobFolder, state_errors
from fray.errors import OutcomeUnreadableError, UnpicklableExceptionError
from fray.payload.callables import Payload
from fray.payload.chunks import split_payload
from fray.payload.outcome import Outcome, decode_outcome
from fray.plan.command import PAYLOAD_MOUNT
from fray.plan.gang import derive_gang
from fray.plan.status import has_succeeded
from fray.termination import Ending, TerminationMessage
from fray.types import JobStatus
from fray.wire.frayjob import FrayJob

__all__ = [
    "build_callable_command",
    "ending_file",
    "outcome_file",
    "prepare_endings",
    "read_outcome",
    "read_outcomes",
    "write_payload",
]


def write_payload(folder: JobFolder, payload: Payload) -> None:
    """Put a pickled callable into the folder of its job.

    Raises:
        StateDirectoryError: the disk is full, or the folder can't be written.
    """
    (part,) = split_payload(payload.data, secret_name="payload", size=max(payload.size, 1))
    with state_errors(folder.payload):
        folder.payload.mkdir(mode=0o700)
        (folder.payload / part.key).write_bytes(part.data)


def build_callable_command(
    command: Sequence[str], *, payload: Path, logs: Path, rank: int
) -> tuple[str, ...]:
    """Return the command of a pod with a callable, with the paths of this machine."""
    here = (str(payload) if argument == PAYLOAD_MOUNT else argument for argument in command)
    reports = ("--outcome", str(outcome_file(logs, rank)), "--termination-log", str(ending_file(logs, rank)))
    return (*here, *reports)


def prepare_endings(logs: Path, *, hosts: int) -> None:
    """Make the files that the processes of an attempt tell their end in; they write no others.

    Raises:
        StateDirectoryError: the disk is full, or the folder can't be written.
    """
    with state_errors(logs):
        for rank in range(hosts):
            ending_file(logs, rank).touch(mode=0o600)


def read_outcome(folder: JobFolder, job: FrayJob, status: JobStatus) -> Outcome | None:
    """Return what became of the callable of a job that has ended so, None where nothing did.

    Raises:
        StateDirectoryError: it can't be read.
        OutcomeUnreadableError: it isn't what the process left.
    """
    last = job.status.attempts[-1] if job.status.attempts else None
    rank = 0 if status is JobStatus.SUCCEEDED else (last.rank if last is not None else None)
    if job.spec.entrypoint.callable is None or last is None or rank is None:
        return None
    return _read_rank(folder, last.number, rank, _ENDINGS.get(status, ()))


def read_outcomes(folder: JobFolder, job: FrayJob) -> list[Outcome]:
    """Return what each rank of a job of a callable returned, by rank; empty unless the job has succeeded.

    Raises:
        StateDirectoryError: it can't be read.
        OutcomeUnreadableError: it isn't what the process left.
    """
    if job.spec.entrypoint.callable is None or not has_succeeded(job.status):
        return []
    number = job.status.attempts[-1].number
    return [
        _read_rank(folder, number, rank, (Ending.RETURNED,)) or Outcome(problem="its process reported no end")
        for rank in range(derive_gang(job.spec).hosts)
    ]


def _read_rank(folder: JobFolder, number: int, rank: int, endings: Collection[Ending]) -> Outcome | None:
    """Return what became of the callable in one process of an attempt; None where it has ended otherwise."""
    logs = folder.attempt_logs(number)
    with state_errors(logs):
        path = ending_file(logs, rank)
        message = TerminationMessage.from_json(path.read_text(encoding="utf-8")) if path.exists() else None
    if message is None or message.ending not in endings:
        return None
    if message.sha256 is None:
        return _without_pickle(message)
    with state_errors(logs):
        path = outcome_file(logs, rank)
        if not path.exists():
            raise OutcomeUnreadableError(f"{path} isn't there", "\n".join(message.lines))
        data = path.read_bytes()
    return decode_outcome(data, sha256=message.sha256)


_ENDINGS = {JobStatus.SUCCEEDED: (Ending.RETURNED,), JobStatus.FAILED: (Ending.RAISED, Ending.NEVER_RAN)}


def _without_pickle(message: TerminationMessage) -> Outcome:
    """What is known of an end whose value or exception wasn't kept."""
    if message.ending is Ending.RETURNED:
        return Outcome(problem="it wasn't kept; the job's log says why")
    function = "the callable"
    return Outcome(
        error=UnpicklableExceptionError(function, message.type, message.message, message.traceback)
    )


def ending_file(logs: Path, rank: int) -> Path:
    """Return where a host tells its end."""
    return logs / f"rank-{rank}.ending"


def outcome_file(logs: Path, rank: int) -> Path:
    """Return where a host leaves what became of its callable."""
    return logs / f"rank-{rank}.outcome"
