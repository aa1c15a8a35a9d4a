"""What happened to a job, in words: pure functions from its resource to lines of text.

Colours are named here (`Tone`) and chosen by the code that prints. Nothing here decides anything: reasons and
messages are those of the status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from fray.cli.columns import format_age, format_columns, format_duration
from fray.cluster.progress import find_waiting
from fray.plan.gang import derive_gang
from fray.plan.status import find_condition, is_finished
from fray.plan.texts import format_count
from fray.plan.timestamps import parse_time
from fray.vocabulary import ConditionType, Phase, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus, ReplicaCounts

__all__ = [
    "Line",
    "Tone",
    "describe_change",
    "describe_end",
    "describe_job",
    "describe_waiting",
    "format_job_table",
    "tone_of_phase",
]


class Tone(Enum):
    """What a line wants to say by its colour."""

    PLAIN = ""
    HEADING = "bold"
    GOOD = "green"
    BAD = "bold red"
    BUSY = "yellow"
    QUIET = "dim"


@dataclass(frozen=True)
class Line:
    """One line of text and its tone."""

    text: str
    tone: Tone = Tone.PLAIN


def tone_of_phase(phase: str | None) -> Tone:
    """Return the tone that goes with a phase."""
    tones = {Phase.SUCCEEDED: Tone.GOOD, Phase.RUNNING: Tone.GOOD, Phase.FAILED: Tone.BAD}
    return next((tone for known, tone in tones.items() if known == phase), Tone.BUSY)


def describe_change(before: FrayJobStatus, after: FrayJobStatus, *, name: str, retries: int) -> list[Line]:
    """Return what is worth telling while a job runs, now that its status has changed; mostly nothing.

    The end of the job is `describe_end`'s.
    """
    if is_finished(after):
        return []
    earlier_attempts = {attempt.number: attempt for attempt in before.attempts}
    lines = []
    for attempt in after.attempts:
        latest = attempt is after.attempts[-1]
        replicas = (after.replicas if latest else None) or ReplicaCounts()
        earlier = earlier_attempts.get(attempt.number)
        who = f"{name}: attempt {attempt.number}"
        if earlier is None:
            lines.append(Line(f"{who}: starting {format_count(replicas.total, 'host')}"))
        started = replicas.pending == 0 and replicas.running > 0 and attempt.reason is None
        if started and (earlier is None or before.replicas is None or before.replicas.pending > 0):
            lines.append(Line(f"{who}: {replicas.running}/{replicas.total} hosts running", Tone.GOOD))
        if attempt.reason not in (None, Reason.COMPLETED) and (earlier is None or earlier.reason is None):
            lines.append(_describe_ending(who, attempt, replicas))
        if attempt.verdict == VerdictKind.FAILURE and (earlier is None or earlier.verdict is None):
            used = after.retries.failures_used if after.retries else 0
            follows = f"{name}: attempt {attempt.number + 1} follows (retry {used} of {retries})"
            lines.append(Line(follows, Tone.BUSY))
    return lines


def describe_waiting(before: FrayJob | None, after: FrayJob) -> list[Line]:
    """Return why a job's hosts don't run, where that is for another reason than before.

    Of a new attempt `describe_change` says that its hosts are starting.
    """
    previous = None if before is None else find_waiting(before)
    waiting = find_waiting(after)
    if waiting is None or (previous is not None and previous.reason == waiting.reason):
        return []
    is_new = before is None or before.status.attempt != after.status.attempt
    if is_new and waiting.reason == Reason.HOSTS_STARTING:
        return []
    message = _first_line(waiting.message) or waiting.reason
    return [Line(f"{after.metadata.name}: waiting: {message}", Tone.QUIET)]


def _describe_ending(who: str, attempt: AttemptStatus, replicas: ReplicaCounts) -> Line:
    left = replicas.running + replicas.pending
    rest = f"; ending {format_count(left, 'host')}" if left and attempt.verdict is None else ""
    return Line(f"{who}: {attempt.message or ''}{rest}", Tone.BAD)


def describe_end(job: FrayJob) -> list[Line]:
    """Return the summary of a finished job: how it ended, after how long, why, and what to do next."""
    status, name = job.status, job.metadata.name
    took = _duration(status.start_time, status.completion_time)
    attempts = f", attempt {status.attempt}" if (status.attempt or 0) > 1 else ""
    if status.phase == Phase.SUCCEEDED:
        return [Line(f"{name}: Succeeded in {took}{attempts}", Tone.GOOD)]
    if status.phase == Phase.STOPPED:
        return [Line(f"{name}: Stopped after {took}{attempts}", Tone.BUSY)]
    condition = find_condition(status, ConditionType.FINISHED)
    explanation, *tail = (condition.message if condition else "").splitlines() or [""]
    after = f"Failed after {_least(status)}{took}"
    lines = [Line(f"{name}: {after}: {status.reason}", Tone.BAD), Line(f"  {explanation}")]
    if tail:
        lines.append(Line("  its last lines:", Tone.QUIET))
        lines += [Line(f"    {line}") for line in tail]
    return [*lines, Line(f"  next: {_show_failed_host(job) or f'fray status {name}'}")]


def _show_failed_host(job: FrayJob) -> str | None:
    """Return the command that shows what the host wrote that failed; None where no host is known to have."""
    name, attempts = job.metadata.name, job.status.attempts
    if attempts and attempts[-1].rank is not None and job.status.reason != Reason.START_FAILED:
        return f"fray logs {name} --attempt {attempts[-1].number} --rank {attempts[-1].rank}"
    return None


def describe_job(job: FrayJob, *, now: datetime, more: Sequence[Line] = ()) -> list[Line]:
    """Return the whole story of a job: where it stands, its conditions, attempt by attempt, and `more`."""
    status, name = job.status, job.metadata.name
    reason = f"   {status.reason}" if status.reason else ""
    lines = [
        Line(f"{name}   {status.phase or '?'}{reason}", tone_of_phase(status.phase)),
        *(Line(line) for line in format_columns(_facts(job, now))),
        Line(""),
        Line("Conditions", Tone.HEADING),
    ]
    rows = [(f"  {c.type}", c.status, c.reason, _first_line(c.message)) for c in status.conditions]
    lines += [Line(line) for line in format_columns(rows)]
    lines += [Line(""), Line("Attempts", Tone.HEADING)]
    for attempt in status.attempts:
        lines += _describe_attempt(attempt, status, now)
    lines += [*more, Line(""), Line(f"next: {_suggestion(job)}", Tone.QUIET)]
    return lines


def _facts(job: FrayJob, now: datetime) -> list[tuple[str, str]]:
    status, retries = job.status, job.spec.retries
    facts = [("  shape", derive_gang(job.spec).describe())]
    if status.start_time is not None:
        age = format_age((now - parse_time(status.start_time)).total_seconds())
        facts.append(("  started", f"{age} ago ({status.start_time})"))
    if status.completion_time is not None:
        took = _least(status) + _duration(status.start_time, status.completion_time)
        facts.append(("  took", took))
    if status.replicas is not None and not is_finished(status):
        facts.append(("  hosts", f"{status.replicas.running}/{status.replicas.total} running"))
    if status.retries is not None:
        # The failure that ends a job counts as well, and no retry follows it.
        used = min(status.retries.failures_used, retries.failures)
        facts.append(("  retries", f"{used} of {retries.failures} for failures used"))
    return facts


def _describe_attempt(attempt: AttemptStatus, status: FrayJobStatus, now: datetime) -> list[Line]:
    if attempt.start_time is None:
        return []
    end = attempt.end_time
    took = _duration(attempt.start_time, end) if end else _elapsed(attempt.start_time, now)
    if attempt.verdict is None:
        what = "is ending" if attempt.reason else (status.phase or "").lower()
        lines = [Line(f"  {attempt.number}   {what} for {took}", Tone.BUSY)]
    else:
        tone = Tone.GOOD if attempt.verdict == VerdictKind.SUCCESS else Tone.BAD
        after = f"{_least(attempt)}{took}"
        lines = [Line(f"  {attempt.number}   {attempt.verdict} after {after}: {attempt.reason}", tone)]
    if attempt.message:
        lines.append(Line(f"      {attempt.message}"))
    return [*lines, *(Line(f"        {line}", Tone.QUIET) for line in attempt.log_tail)]


def _suggestion(job: FrayJob) -> str:
    name = job.metadata.name
    if not is_finished(job.status):
        return f"fray logs -f {name}, or fray stop {name}"
    if job.status.phase == Phase.FAILED:
        return _show_failed_host(job) or f"fray logs {name}, or fray delete {name}"
    return f"fray logs {name}"


def format_job_table(jobs: Sequence[FrayJob], *, now: datetime, width: int | None = None) -> list[Line]:
    """Return one line for each job under a line of headings, of at most `width` characters."""
    rows = [("NAME", "PHASE", "ATTEMPT", "READY", "REASON", "AGE")]
    for job in jobs:
        status, created = job.status, job.metadata.creation_timestamp
        counts = status.replicas or ReplicaCounts()
        ended_well = counts.succeeded if status.phase == Phase.RUNNING else 0
        rows.append(
            (
                job.metadata.name,
                status.phase or "",
                str(status.attempt or ""),
                f"{counts.running + ended_well}/{counts.total}",
                status.reason or "",
                format_age((now - parse_time(created)).total_seconds()) if created else "",
            )
        )
    heading, *lines = format_columns(rows, width=width)
    tones = [tone_of_phase(job.status.phase) for job in jobs]
    return [Line(heading, Tone.HEADING), *(Line(line, tone) for line, tone in zip(lines, tones, strict=True))]


def _first_line(message: str | None) -> str:
    return (message or "").partition("\n")[0]


def _least(status: FrayJobStatus | AttemptStatus) -> str:
    """Return what stands before a length of time whose end nobody saw: the last news before are known."""
    return "at least " if status.reason == Reason.RUNNER_LOST else ""


def _duration(start: str | None, end: str | None) -> str:
    if start is None or end is None:
        return "0.0 s"
    return format_duration((parse_time(end) - parse_time(start)).total_seconds())


def _elapsed(start: str, now: datetime) -> str:
    return format_duration((now - parse_time(start)).total_seconds())
