"""Which Kubernetes Events tell the story of a job: few, each worth reading.

Derived from two statuses, the one written before and the one just written. An event's key makes its
name, so that each is sent once per attempt however often the same change is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fray.plan.status import find_condition, is_finished
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.status import AttemptStatus, FrayJobStatus

__all__ = ["EventDraft", "derive_events"]

QUIET = frozenset(
    {
        Reason.HOSTS_STARTING,
        Reason.BACK_OFF,
        Reason.SUSPENDED,
        Reason.STOPPING,
        Reason.ENDED,
        Reason.NOT_STARTED,
    }
)
"""Reasons of Scheduled=False and Running=False that need no event of their own."""
MESSAGE_LENGTH = 1000


@dataclass(frozen=True)
class EventDraft:
    """An event to send: `warning` or normal; `key` is unique within the job."""

    key: str
    warning: bool
    reason: str
    message: str


def derive_events(before: FrayJobStatus, after: FrayJobStatus) -> list[EventDraft]:
    """Return the events that tell what changed; at most six for an attempt."""
    return [
        EventDraft(draft.key.lower(), draft.warning, draft.reason, _one_line(draft.message))
        for draft in (*_attempt_events(before, after), *_condition_events(before, after))
    ]


def _one_line(message: str) -> str:
    """Return a message as one line: kubectl shows events as rows of a table."""
    return " | ".join(line.strip() for line in message.splitlines() if line.strip())[:MESSAGE_LENGTH]


def _attempt_events(before: FrayJobStatus, after: FrayJobStatus) -> Iterator[EventDraft]:
    known = {attempt.number: attempt for attempt in before.attempts}
    for attempt in after.attempts:
        previous = known.get(attempt.number)
        prefix = f"a{attempt.number}"
        if previous is None:
            message = f"attempt {attempt.number} started as JobSet {attempt.job_set}"
            yield EventDraft(f"{prefix}-started", False, "AttemptStarted", message)
        if attempt.running_time is not None and (previous is None or previous.running_time is None):
            message = f"all hosts of attempt {attempt.number} run"
            yield EventDraft(f"{prefix}-running", False, "AttemptRunning", message)
        if attempt.verdict not in (None, VerdictKind.SUCCESS) and (
            previous is None or previous.verdict is None
        ):
            yield _ended(prefix, attempt)


def _ended(prefix: str, attempt: AttemptStatus) -> EventDraft:
    warning = attempt.verdict in (VerdictKind.FAILURE, VerdictKind.PREEMPTION)
    message = f"attempt {attempt.number} ended ({attempt.verdict}: {attempt.reason}): {attempt.message}"
    return EventDraft(f"{prefix}-ended", warning, "AttemptEnded", message)


def _condition_events(before: FrayJobStatus, after: FrayJobStatus) -> Iterator[EventDraft]:
    number = after.attempts[-1].number if after.attempts else 0
    accepted = find_condition(after, ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "False":
        yield EventDraft(f"refused-{accepted.reason}", True, accepted.reason, accepted.message)
    for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING):
        now, then = find_condition(after, kind), find_condition(before, kind)
        if now is None or now.status == "True" or Reason(now.reason) in QUIET:
            continue
        if accepted is not None and now.reason == accepted.reason:
            continue
        if then is None or then.reason != now.reason:
            yield EventDraft(f"a{number}-{now.reason}", True, now.reason, now.message)
            break
    if is_finished(after) and not is_finished(before):
        yield from _finished(after)


def _finished(after: FrayJobStatus) -> Iterator[EventDraft]:
    for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.STOPPED):
        condition = find_condition(after, kind)
        if condition is not None:
            warning = kind is ConditionType.FAILED
            yield EventDraft("finished", warning, kind.value, f"{condition.reason}: {condition.message}")
