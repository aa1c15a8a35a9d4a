"""Verdicts, reasons and times read back from a status, which another version of Fray may have written.

A word that this version doesn't know is never guessed at where something would be decided on it: an
attempt charged to the wrong budget can't be charged back.
"""

from __future__ import annotations

from fray.errors import SurroundingsError
from fray.plan.timestamps import parse_time
from fray.vocabulary import Reason, VerdictKind
from fray.wire.status import AttemptStatus, FrayJobStatus

__all__ = [
    "UnknownWordError",
    "UnreadableTimeError",
    "check_times",
    "read_final_reason",
    "read_reason",
    "read_verdict",
]


LEFT_ALONE = "the job is left alone, but for spec.stopped, spec.suspend and its deletion"


class UnknownWordError(SurroundingsError):
    """A status holds a word of another version; `field` is `reason` or `verdict`."""

    message = "this version of Fray doesn't know the {field} {word!r} of attempt {attempt}"
    next_step = f"Run the version that wrote this status, or a newer one; until then {LEFT_ALONE}."

    attempt: int
    field: str
    word: str


class UnreadableTimeError(SurroundingsError):
    """A status holds a time that is none; `path` names its field, such as `status.startTime`."""

    message = "{path} is {text!r}, which is no time such as 2026-01-31T12:00:00Z"
    next_step = f"Correct it in the status; until then {LEFT_ALONE}."

    path: str
    text: str


LAST_YEAR = 9000
"""What somebody put beyond it is refused: Python's times end with the year 9999."""


def check_times(status: FrayJobStatus) -> None:
    """Check that every time that decisions rest on can be read; raises `UnreadableTimeError`."""
    times = {"status.startTime": status.start_time}
    for index, attempt in enumerate(status.attempts):
        path = f"status.attempts[{index}]"
        times[f"{path}.startTime"] = attempt.start_time
        times[f"{path}.runningTime"] = attempt.running_time
        times[f"{path}.endTime"] = attempt.end_time
    for index, avoided in enumerate(status.avoided_nodes):
        times[f"status.avoidedNodes[{index}].until"] = avoided.until
    for path, text in times.items():
        try:
            year = parse_time(text or "1970-01-01T00:00:00Z").year
        except ValueError as error:
            raise UnreadableTimeError(path, str(text)) from error
        if year > LAST_YEAR:  # limits and pauses are added to it
            raise UnreadableTimeError(path, str(text))


def read_verdict(attempt: AttemptStatus) -> VerdictKind | None:
    """Return what the attempt's end was charged to, None before; raises `UnknownWordError`."""
    if attempt.verdict is None:
        return None
    try:
        return VerdictKind(attempt.verdict)
    except ValueError as error:
        raise UnknownWordError(attempt.number, "verdict", attempt.verdict) from error


def read_reason(attempt: AttemptStatus) -> Reason | None:
    """Return why a live attempt is being ended, None while it isn't; raises `UnknownWordError`."""
    if attempt.reason is None:
        return None
    try:
        return Reason(attempt.reason)
    except ValueError as error:
        raise UnknownWordError(attempt.number, "reason", attempt.reason) from error


def read_final_reason(attempt: AttemptStatus) -> Reason:
    """Return why an attempt that has a verdict ended.

    An unknown word is `Ended` here: the verdict decides what follows, the attempt keeps the word, and its
    message tells the story.
    """
    try:
        return read_reason(attempt) or Reason.ENDED
    except UnknownWordError:
        return Reason.ENDED
