"""Which Kubernetes Events tell the story of a job: few, each worth reading.

Derived from two statuses, the one written before and the one just written. An event's key makes its
name, so that each is sent once per attempt however often the same change is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fray.plan.reasons import EventType, get_row
from fray.plan.status import find_condition, is_finished
from fray.vocabulary import ConditionType, VerdictKind
from fray.wire.status import AttemptStatus, FrayJobStatus

__all__ = ["EventDraft", "derive_events", "derive_started"]

MESSAGE_LENGTH = 1000


@dataclass(frozen=True)
class EventDraft:
    """An event to send: `warning` or normal; `key` is unique within the job.

    `attempt` is the number of the attempt that it is about, if any. `milestone` tells steps in the life of a
    job from what keeps it waiting for the next one.
    """

    key: str
    warning: bool
    reason: str
    message: str
    attempt: int | None = None
    milestone: bool = True


def derive_events(before: FrayJobStatus, after: FrayJobStatus) -> list[EventDraft]:
    """Return the events that tell what changed.

    With `derive_started` they are at most six for an attempt: why it isn't placed and why it doesn't run
    are sent once each, and the status shows what came after. One that queues has up to three more, and so has
    one that node pools are made for.
    """
    return [
        replace(draft, key=draft.key.lower(), message=_one_line(draft.message))
        for draft in (*_attempt_events(before, after), *_condition_events(before, after))
    ]


def derive_started(attempt: AttemptStatus) -> EventDraft:
    """Return the event of an attempt whose JobSet was created."""
    message = f"attempt {attempt.number} started as JobSet {attempt.job_set}"
    return EventDraft(f"a{attempt.number}-started", False, "AttemptStarted", message, attempt.number)


def _one_line(message: str) -> str:
    """Return a message as one line: kubectl shows events as rows of a table."""
    return " | ".join(line.strip() for line in message.splitlines() if line.strip())[:MESSAGE_LENGTH]


def _attempt_events(before: FrayJobStatus, after: FrayJobStatus) -> Iterator[EventDraft]:
    known = {attempt.number: attempt for attempt in before.attempts}
    for attempt in after.attempts:
        previous = known.get(attempt.number)
        prefix = f"a{attempt.number}"
        if attempt.running_time is not None and (previous is None or previous.running_time is None):
            message = f"all hosts of attempt {attempt.number} run"
            yield EventDraft(f"{prefix}-running", False, "AttemptRunning", message, attempt.number)
        if attempt.verdict not in (None, VerdictKind.SUCCESS) and (
            previous is None or previous.verdict is None
        ):
            yield _ended(prefix, attempt)


def _ended(prefix: str, attempt: AttemptStatus) -> EventDraft:
    warning = attempt.verdict in (VerdictKind.FAILURE, VerdictKind.PREEMPTION)
    message = f"attempt {attempt.number} ended ({attempt.verdict}: {attempt.reason}): {attempt.story}"
    return EventDraft(f"{prefix}-ended", warning, "AttemptEnded", message, attempt.number)


def _condition_events(before: FrayJobStatus, after: FrayJobStatus) -> Iterator[EventDraft]:
    number = after.attempts[-1].number if after.attempts else 0
    accepted, was = (find_condition(status, ConditionType.ACCEPTED) for status in (after, before))
    known = was is not None and accepted is not None and was.message == accepted.message
    if accepted is not None and accepted.status == "False" and not known:
        yield EventDraft(f"refused-{accepted.reason}", True, accepted.reason, accepted.message)
    unreadable = find_condition(after, ConditionType.STATUS_READABLE)
    if unreadable is not None and find_condition(before, ConditionType.STATUS_READABLE) is None:
        yield EventDraft("unreadable", True, unreadable.reason, unreadable.message)
        return
    for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING):
        now, then = find_condition(after, kind), find_condition(before, kind)
        if now is None or now.status == "True" or get_row(now.reason).event is None:
            continue
        if accepted is not None and now.reason == accepted.reason:
            continue
        if then is None or then.reason != now.reason:
            warning = get_row(now.reason).event is EventType.WARNING
            key = f"a{number}-{get_row(now.reason).event_key or f'not-{kind}'}"
            yield EventDraft(key, warning, now.reason, now.message, number, milestone=False)
            break
    if is_finished(after) and not is_finished(before):
        yield from _finished(after)


def _finished(after: FrayJobStatus) -> Iterator[EventDraft]:
    for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.STOPPED):
        condition = find_condition(after, kind)
        if condition is not None:
            warning = kind is ConditionType.FAILED
            message = f"{condition.reason}: {condition.message}"
            yield EventDraft("finished", warning, kind.value, message, after.attempt)
