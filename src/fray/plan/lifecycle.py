"""What to do next about a job: the one decision that the operator and the local backend share.

`decide` looks at the resource, at what was observed of the current attempt and at the time, and returns
the new status and at most one action. It is level-based: called again with the same input it decides
the same, so a caller that died between writing the status and acting only has to call it again. The
caller writes the status *before* it acts.

An attempt goes through three stages, all visible in `status.attempts`: live (no reason), ending (a
reason, hosts are being terminated), ended (a verdict). Only then may the next one start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fray.plan.deadlines import Deadline, derive_attempt_deadline, derive_total_deadline
from fray.plan.gang import derive_gang
from fray.plan.names import build_jobset_name
from fray.plan.observation import GangObservation, Waiting
from fray.plan.retries import charge, derive_budget, derive_delay
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished
from fray.plan.timestamps import format_time, parse_time
from fray.plan.verdict import Cause, derive_cause, derive_charge
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus, RetryCounts

__all__ = ["Decision", "EndAttempt", "StartAttempt", "decide"]

KEPT_ATTEMPTS = 10


@dataclass(frozen=True)
class StartAttempt:
    """Create the hosts of this attempt, unless they exist already."""

    number: int


@dataclass(frozen=True)
class EndAttempt:
    """Terminate every host of this attempt that still runs; repeated until all have ended."""

    number: int
    reason: Reason


@dataclass(frozen=True)
class Decision:
    """The new status, what to do after it is written, and when to look again if nothing happens before."""

    status: FrayJobStatus
    action: StartAttempt | EndAttempt | None = None
    wake_at: datetime | None = None

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return is_finished(self.status)


@dataclass(frozen=True)
class _Pass:
    """One call of `decide`: its input, and the attempts and counts as far as they are known."""

    job: FrayJob
    observed: GangObservation | None
    now: datetime
    policy: RetryPolicy
    attempts: tuple[AttemptStatus, ...]
    counts: RetryCounts
    refusal: Waiting | None
    unsupported: Waiting | None

    def conclude(
        self,
        outlook: Outlook,
        *,
        action: StartAttempt | EndAttempt | None = None,
        wake_at: datetime | None = None,
    ) -> Decision:
        """Return the decision with the status that tells about it."""
        kept = self.attempts[-KEPT_ATTEMPTS:]
        waiting = self.observed.waiting if self.observed is not None else self.refusal
        outlook = replace(outlook, waiting=waiting, unsupported=self.unsupported)
        status = derive_status(self.job, self.observed, kept, self.counts, outlook, self.now)
        return Decision(status, action, wake_at)


def decide(
    job: FrayJob,
    observed: GangObservation | None,
    *,
    now: datetime,
    policy: RetryPolicy,
    refusal: Waiting | None = None,
    unsupported: Waiting | None = None,
) -> Decision:
    """Return what to do about a job whose spec the API server accepted.

    `job.status` is the status written last. `observed` are the hosts of the current attempt, None where
    none exist. `now` is an aware datetime. `refusal` says why the hosts could not be created when that
    was tried last; `unsupported` why no attempt may start at all.
    """
    if is_finished(job.status):
        return Decision(job.status)
    counts = job.status.retries or RetryCounts(failures_used=0, preemptions_used=0)
    this = _Pass(job, observed, now, policy, tuple(job.status.attempts), counts, refusal, unsupported)
    if this.attempts and this.attempts[-1].verdict is None:
        return _within_attempt(this, this.attempts[-1])
    return _between_attempts(this)


def _within_attempt(this: _Pass, attempt: AttemptStatus) -> Decision:
    attempt = _with_running_time(attempt, this.observed)
    deadlines = _deadlines(this, attempt)
    if attempt.reason is None:
        cause = _derive_end(this, attempt, deadlines)
        if cause is not None:
            attempt = _with_cause(attempt, cause)
    this = replace(this, attempts=(*this.attempts[:-1], attempt))
    if attempt.reason is None:
        if this.observed is None:
            # The status was written, but the hosts were not created before the caller died.
            return this.conclude(Outlook(Stage.STARTING), action=StartAttempt(attempt.number))
        wake_at = min((deadline.at for deadline in deadlines), default=None)
        return this.conclude(Outlook(Stage.LIVE), wake_at=wake_at)
    if this.observed is not None and not this.observed.ended:
        return this.conclude(Outlook(Stage.ENDING), action=EndAttempt(attempt.number, Reason(attempt.reason)))
    return _between_attempts(_closed(this, attempt))


def _between_attempts(this: _Pass) -> Decision:
    last = this.attempts[-1] if this.attempts else None
    ending = _derive_job_end(this, last)
    if ending is not None:
        return this.conclude(Outlook(Stage.FINISHED, ending=ending))
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    if this.job.spec.suspend:
        return this.conclude(Outlook(Stage.SUSPENDED), wake_at=total.at if total else None)
    if last is not None and last.end_time is not None:
        start = parse_time(last.end_time) + timedelta(seconds=derive_delay(this.attempts, this.policy))
        if this.now < start:
            wake_at = min(start, total.at) if total else start
            return this.conclude(Outlook(Stage.BACKING_OFF, until=start), wake_at=wake_at)
    if this.unsupported is not None:
        return this.conclude(Outlook(Stage.UNSUPPORTED))
    number = last.number + 1 if last else 1
    name = build_jobset_name(this.job.metadata.name, attempt=number, gang=derive_gang(this.job.spec))
    attempt = AttemptStatus(number=number, job_set=name, start_time=format_time(this.now))
    started = replace(this, attempts=(*this.attempts, attempt), observed=None)
    return started.conclude(Outlook(Stage.STARTING), action=StartAttempt(number))


def _derive_job_end(this: _Pass, last: AttemptStatus | None) -> Ending | None:
    """Return how the whole job ends, if it does: between attempts, in order of precedence."""
    if last is not None and last.verdict is not None:
        verdict, reason = VerdictKind(last.verdict), Reason(last.reason or Reason.ENDED)
        message = last.message or ""
        if verdict is VerdictKind.SUCCESS:
            return Ending(ConditionType.SUCCEEDED, reason, f"{message} in attempt {last.number}")
        if verdict is VerdictKind.STOPPED:
            return Ending(ConditionType.STOPPED, reason, message)
        if reason is Reason.TOTAL_TIMEOUT:
            return Ending(ConditionType.FAILED, reason, message)
        budget = derive_budget(this.job.spec.retries, this.counts, verdict)
        if budget is not None and budget.exhausted:
            sentence, *log = message.splitlines() or [""]
            told = "\n".join([f"{sentence} in attempt {last.number}; {budget.describe()}", *log])
            return Ending(ConditionType.FAILED, reason, told)
    if this.job.spec.stopped:
        return Ending(ConditionType.STOPPED, Reason.STOP_REQUESTED, "spec.stopped is true")
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    if total is not None and total.at <= this.now:
        return Ending(ConditionType.FAILED, total.reason, total.message)
    return None


def _derive_end(this: _Pass, attempt: AttemptStatus, deadlines: list[Deadline]) -> Cause | None:
    """Return why the live attempt ends, if it does.

    What happened first is the cause: a host that failed before a deadline is named, and one that failed
    after it isn't. A gang that has ended by itself is what it is, even when a stop came meanwhile.
    """
    causes = [Cause(d.reason, d.message, d.at) for d in deadlines if d.at <= this.now]
    if this.observed is not None:
        own = derive_cause(this.observed)
        if own is not None:
            causes.append(own)
    if causes:
        return min(causes, key=lambda cause: cause.at)
    if this.job.spec.stopped:
        return Cause(Reason.STOP_REQUESTED, "spec.stopped is true", this.now)
    if this.job.spec.suspend:
        return Cause(Reason.SUSPENDED, "spec.suspend is true", this.now)
    if this.observed is None and attempt.running_time is not None:
        # Not started again under the same number: its program would believe it to be the first.
        return Cause(Reason.HOSTS_GONE, "its hosts are gone: they were deleted from outside", this.now)
    return None


def _deadlines(this: _Pass, attempt: AttemptStatus) -> list[Deadline]:
    own = derive_attempt_deadline(this.job.spec.timeouts, attempt)
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    return [deadline for deadline in (own, total) if deadline is not None]


def _with_running_time(attempt: AttemptStatus, observed: GangObservation | None) -> AttemptStatus:
    """Record when the last host of the gang began to run, once all have."""
    if attempt.running_time is not None or observed is None:
        return attempt
    starts = [host.started_at for host in observed.hosts if host.started_at is not None]
    if len(starts) < len(observed.hosts):
        return attempt
    return attempt.model_copy(update={"running_time": format_time(max(starts))})


def _with_cause(attempt: AttemptStatus, cause: Cause) -> AttemptStatus:
    update: dict[str, object] = {"reason": cause.reason.value, "message": cause.message}
    if cause.host is not None:
        host = cause.host
        update |= {"pod": host.name, "node": host.node, "rank": host.rank, "exit_code": host.exit_code}
    return attempt.model_copy(update=update)


def _closed(this: _Pass, attempt: AttemptStatus) -> _Pass:
    """Return the pass after the attempt's end: verdict in the status, its budget charged once."""
    assert attempt.reason is not None
    verdict = derive_charge(Reason(attempt.reason))
    ends = (
        [host.ended_at for host in this.observed.hosts if host.ended_at is not None] if this.observed else []
    )
    closed = attempt.model_copy(
        update={"verdict": verdict.value, "end_time": format_time(max(ends, default=this.now))}
    )
    return replace(this, attempts=(*this.attempts[:-1], closed), counts=charge(this.counts, verdict))
