"""What to do next about a job: the one decision that the operator and the local backend share.

`decide` looks at the resource, at what was observed of the current attempt and at the time, and returns
the new status and at most one action. It is level-based: called again with the same input it decides
the same, so a caller that died between writing the status and acting only has to call it again. The
caller writes the status *before* it acts.

An attempt goes through three stages, all visible in `status.attempts`: live (no reason), ending (a
reason, hosts are being terminated), ended (a verdict). Only then may the next one start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fray.accelerators import LABEL_NODE_POOL
from fray.plan.gang import derive_gang
from fray.plan.limits import (
    Deadline,
    charge,
    derive_attempt_deadline,
    derive_budget,
    derive_delay,
    derive_total_deadline,
    is_misplaced_for_good,
)
from fray.plan.names import build_jobset_name
from fray.plan.node_faults import add_avoided, drop_expired, find_release, record_node_faults
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Suspension, Waiting
from fray.plan.reasons import REASONS, get_row
from fray.plan.recorded import (
    UnknownWordError,
    UnreadableTimeError,
    check_times,
    read_final_reason,
    read_reason,
    read_verdict,
)
from fray.plan.remains import note_disruption, recall_disruption
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending, Outlook, Stage, derive_status, is_finished, with_unreadable
from fray.plan.texts import TEXT_LIMIT, clean_text, flatten
from fray.plan.timestamps import CLOCK_SKEW, format_time, parse_time
from fray.plan.verdict import (
    Cause,
    derive_cause,
    derive_settling,
    describe_disruption,
)
from fray.plan.worker_observation import WorkersObservation
from fray.plan.workers import (
    WorkerStep,
    decide_workers,
    derive_failure,
    find_removable,
)
from fray.vocabulary import ANNOTATION_STOPPED_BECAUSE, ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, AvoidedNode, FrayJobStatus, RetryCounts

__all__ = ["Decision", "EndAttempt", "RenumberHosts", "StartAttempt", "decide", "describe_stop"]

KEPT_ATTEMPTS = 10
PLACEMENT_ADVICE = (
    f"give each slice a node pool of its own, free of other work and labelled {LABEL_NODE_POOL}, "
    "and create the job anew"
)
NO_HELP = "each further attempt would end so too"
RELEASED = "no node took its hosts, and one that they keep off may be used again"
GIVEN_UP = "no other node takes them, so the next attempt may use those that this one kept off"
OTHERS_SUSPENSION = "its JobSet was suspended, and not by this job's spec.suspend"
RESUMED_EARLY = "its JobSet was resumed before its hosts could get the number of this attempt"
OTHERS_RELEASE = "its JobSet was suspended and resumed, and not by this job's spec.suspend"


@dataclass(frozen=True)
class StartAttempt:
    """Create the hosts of this attempt, unless they exist already."""

    number: int


@dataclass(frozen=True)
class RenumberHosts:
    """Pass this number to the hosts that a queue will make of an earlier attempt's JobSet."""

    number: int


@dataclass(frozen=True)
class EndAttempt:
    """Terminate every host of this attempt that still runs; repeated until all have ended."""

    number: int
    reason: Reason


Action = StartAttempt | RenumberHosts | EndAttempt | WorkerStep


@dataclass(frozen=True)
class Decision:
    """The new status, what to do after it is written, and when to look again if nothing happens before."""

    status: FrayJobStatus
    action: Action | None = None
    wake_at: datetime | None = None
    unreadable: str | None = None
    """Why the status can't be judged by, where another version wrote it, and what to do about it."""

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return is_finished(self.status)


@dataclass(frozen=True)
class _Pass:
    """One call of `decide`: its input; attempts, counts and avoided nodes as far as they are known."""

    job: FrayJob
    observed: GangObservation | None
    now: datetime
    policy: RetryPolicy
    attempts: tuple[AttemptStatus, ...]
    counts: RetryCounts
    avoided: tuple[AvoidedNode, ...]
    refusal: Waiting | None
    unsupported: Waiting | None
    workers: WorkersObservation | None

    def conclude(
        self,
        outlook: Outlook,
        *,
        action: Action | None = None,
        wake_at: datetime | None = None,
    ) -> Decision:
        """Return the decision with the status that tells about it."""
        kept = self.attempts[-KEPT_ATTEMPTS:]
        waiting = self.observed.waiting if self.observed is not None else self.refusal
        outlook = replace(outlook, waiting=waiting, unsupported=self.unsupported, workers=self.workers)
        status = derive_status(self.job, self.observed, kept, self.counts, outlook, self.now)
        status = status.model_copy(update={"avoided_nodes": list(self.avoided)})
        if status != self.job.status and not self._is_being_placed():
            status = status.model_copy(update={"avoided_nodes": list(drop_expired(self.avoided, self.now))})
        return Decision(status, action, wake_at)

    def _is_being_placed(self) -> bool:
        """Whether the avoided nodes are those that the hosts of this attempt are made with, or wait for."""
        last = self.attempts[-1] if self.attempts else None
        return last is not None and last.verdict is None and last.running_time is None


def decide(  # noqa: PLR0913 - all that a decision rests on
    job: FrayJob,
    observed: GangObservation | None,
    *,
    now: datetime,
    policy: RetryPolicy,
    refusal: Waiting | None = None,
    unsupported: Waiting | None = None,
    workers: WorkersObservation | None = None,
) -> Decision:
    """Return what to do about a job whose spec the API server accepted.

    `job.status` is the status written last. `observed` are the hosts of the current attempt, None where
    none exist. `now` is an aware datetime. `refusal` says why the hosts could not be created when that
    was tried last; `unsupported` why no attempt may start at all. `workers` are those of the current attempt,
    None where there can't be any.

    A status that another version wrote is left as it is, and says so in a condition; the job can be stopped
    and suspended all the same.
    """
    if is_finished(job.status):
        return Decision(job.status)
    avoided = tuple(job.status.avoided_nodes)
    counts = job.status.retries or RetryCounts(failures_used=0, preemptions_used=0)
    this = _Pass(
        job,
        observed,
        now,
        policy,
        tuple(job.status.attempts),
        counts,
        avoided,
        refusal,
        unsupported,
        workers,
    )
    try:
        return _decide_readable(this)
    except (UnknownWordError, UnreadableTimeError) as error:
        return _decide_unreadable(this, f"{error.message}. {error.next_step}")


def _decide_readable(this: _Pass) -> Decision:
    check_times(this.job.status)
    if this.job.status.retries is None:
        this = replace(this, counts=_recount(this.attempts))
    if this.attempts and this.attempts[-1].verdict is None:
        return _within_attempt(this, this.attempts[-1])
    return _between_attempts(this)


def _decide_unreadable(this: _Pass, why: str) -> Decision:
    """Return what is certain about a job whose status can't be judged by: its attempts are never touched."""
    last = this.attempts[-1] if this.attempts else None
    stop = describe_stop(this.job)
    left = this.observed if last is not None and last.verdict is None else None
    action: Action | None = None
    if stop is None and not this.job.spec.suspend:
        status = this.job.status
    else:
        outlook = Outlook(Stage.SUSPENDED)
        if last is not None and left is not None and not left.ended:
            outlook = Outlook(Stage.ENDING)
            action = EndAttempt(last.number, Reason.SUSPENDED if stop is None else Reason.STOP_REQUESTED)
        elif this.workers is not None and this.workers.left:
            outlook, action = Outlook(Stage.ENDING), find_removable(this.workers.left)
        elif stop is not None:
            ending = Ending(ConditionType.STOPPED, Reason.STOP_REQUESTED, stop)
            outlook = Outlook(Stage.FINISHED, ending=ending)
        observed = [
            attempt.model_copy(update={"message": stop or "spec.suspend is true"})
            for attempt in this.attempts
        ]
        status = derive_status(this.job, left, observed, this.counts, outlook, this.now)
        kept = {"attempts": list(this.attempts), "retries": this.job.status.retries}
        status = status.model_copy(update=kept)
    return Decision(with_unreadable(status, this.job, why, this.now), action, unreadable=why)


def _recount(attempts: Sequence[AttemptStatus]) -> RetryCounts:
    """Return what was charged to the budgets, as far as the attempts that are kept tell."""
    counts = RetryCounts(failures_used=0, preemptions_used=0)
    for attempt in attempts:
        verdict = read_verdict(attempt)
        counts = charge(counts, verdict) if verdict is not None else counts
    return counts


def describe_stop(job: FrayJob) -> str | None:
    """Return why the job is to end for good whatever else it says, None while it isn't.

    A FrayJob that is being deleted may stay for long, for somebody else's finalizer, and own its hosts until
    it is gone.
    """
    if job.metadata.deletion_timestamp is not None:
        return "the FrayJob is being deleted"
    if not job.spec.stopped:
        return None
    because = job.metadata.annotations.get(ANNOTATION_STOPPED_BECAUSE)
    return flatten(clean_text(because), most=TEXT_LIMIT) if because else "spec.stopped is true"


def _within_attempt(this: _Pass, attempt: AttemptStatus) -> Decision:
    if this.observed is not None:
        this = replace(this, observed=recall_disruption(attempt, this.observed))
    attempt = _with_workers_time(_with_running_time(attempt, this.observed), this)
    deadlines = _deadlines(this, attempt)
    if attempt.reason is None:
        cause = _derive_end(this, attempt, deadlines)
        if cause is not None:
            attempt = _with_outcome(_with_cause(attempt, cause), this.observed)
    elif this.observed is not None and not get_row(attempt.reason).certain:
        attempt = _revised(attempt, this.observed)
    attempt = note_disruption(attempt, this.observed)
    if attempt.reason is not None and this.observed is not None and this.policy.avoid_seconds > 0:
        attempt = record_node_faults(attempt, this.observed, this.job.spec)
    this = replace(this, attempts=(*this.attempts[:-1], attempt))
    reason = read_reason(attempt)
    if reason is None:
        if this.observed is None:
            if this.unsupported is not None:
                return this.conclude(Outlook(Stage.UNSUPPORTED))
            # The status was written, but the hosts were not created before the caller died. It may have been
            # a version that named them otherwise: what is made, or found, now has the name of this one.
            named = attempt.model_copy(update={"job_set": _jobset_name(this.job, attempt.number)})
            this = replace(this, attempts=(*this.attempts[:-1], named))
            return this.conclude(Outlook(Stage.STARTING), action=StartAttempt(attempt.number))
        moments = [deadline.at for deadline in deadlines]
        release = _find_release(this, attempt)
        wake_at = min([*moments, release] if release is not None else moments, default=None)
        stale = this.observed.misnumbered and this.observed.requeued and this.observed.vacated
        action = RenumberHosts(attempt.number) if stale else _step_of_workers(this, this.observed)
        return this.conclude(Outlook(Stage.LIVE), action=action, wake_at=wake_at)
    return _end_attempt(this, attempt, reason)


def _end_attempt(this: _Pass, attempt: AttemptStatus, reason: Reason) -> Decision:
    """Return what to do until all hosts and workers of an attempt have ended, and what follows it."""
    if this.observed is not None and not this.observed.ended:
        return _while_hosts_end(this, this.observed, attempt, reason)
    if this.observed is not None and not REASONS[reason].certain:
        settling = derive_settling(this.observed, now=this.now, seconds=this.policy.settle_seconds)
        if settling is not None:
            return this.conclude(Outlook(Stage.ENDING), wake_at=settling)
    if this.workers is not None and this.workers.left:
        return this.conclude(Outlook(Stage.ENDING), action=find_removable(this.workers.left))
    return _between_attempts(_closed(this, attempt, reason))


def _step_of_workers(this: _Pass, observed: GangObservation) -> WorkerStep | None:
    """Return the next step towards the workers that are wanted; those of a gang in a queue come after it."""
    if this.workers is None or observed.suspended:
        return None
    return find_removable(this.workers.stale) or decide_workers(this.job, this.workers.jobs)


def _between_attempts(this: _Pass, *, kept: str | None = None) -> Decision:
    """Return what follows the last attempt; `kept` names its JobSet where a queue will resume that."""
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
    name = kept or _jobset_name(this.job, number)
    attempt = AttemptStatus(number=number, job_set=name, start_time=format_time(this.now))
    avoided = drop_expired(this.avoided, this.now) if this.policy.avoid_seconds > 0 else ()
    started = replace(this, attempts=(*this.attempts, attempt), avoided=avoided, observed=None)
    action = StartAttempt(number) if kept is None else RenumberHosts(number)
    return started.conclude(Outlook(Stage.STARTING), action=action)


def _jobset_name(job: FrayJob, number: int) -> str:
    return build_jobset_name(job.metadata.name, attempt=number, gang=derive_gang(job.spec))


def _derive_job_end(this: _Pass, last: AttemptStatus | None) -> Ending | None:
    """Return how the whole job ends, if it does: between attempts, in order of precedence."""
    verdict = read_verdict(last) if last is not None else None
    if last is not None and verdict is not None:
        reason, message = read_final_reason(last), last.message or ""
        if verdict is VerdictKind.SUCCESS:
            return Ending(ConditionType.SUCCEEDED, reason, f"{message} in attempt {last.number}")
        if verdict is VerdictKind.STOPPED:
            return Ending(ConditionType.STOPPED, reason, message)
        final = verdict is VerdictKind.FAILURE and REASONS[reason].final
        if final and REASONS[reason].timeout:
            return Ending(ConditionType.FAILED, reason, message)
        budget = derive_budget(this.job.spec.retries, this.counts, verdict)
        why = budget.describe() if budget is not None and budget.exhausted else None
        if final:
            why = NO_HELP
        if why is not None:
            explanation = "\n".join([f"{message} in attempt {last.number}; {why}", *last.log_tail])
            return Ending(ConditionType.FAILED, reason, explanation)
        if is_misplaced_for_good(this.counts, verdict):
            text = f"{message} in attempt {last.number}, the {this.counts.misplacements_used}th such attempt"
            return Ending(ConditionType.FAILED, reason, f"{text}; {PLACEMENT_ADVICE}")
    if (stop := describe_stop(this.job)) is not None:
        return Ending(ConditionType.STOPPED, Reason.STOP_REQUESTED, stop)
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    if total is not None and total.at <= this.now:
        return Ending(ConditionType.FAILED, total.reason, total.message)
    return None


def _derive_end(this: _Pass, attempt: AttemptStatus, deadlines: list[Deadline]) -> Cause | None:
    """Return why the live attempt ends, if it does.

    What happened first is the cause: a host that failed before a deadline is named, and one that failed
    after it isn't. A gang that has ended by itself is what it is, even when a stop came in between.
    """
    if this.observed is not None and this.observed.misnumbered and not this.observed.suspended:
        return Cause(Reason.SUSPENDED, RESUMED_EARLY, this.now)
    causes = _list_causes(this, attempt, deadlines)
    if causes:
        return min(causes, key=lambda cause: cause.at)
    if (stop := describe_stop(this.job)) is not None:
        return Cause(Reason.STOP_REQUESTED, stop, this.now)
    if this.job.spec.suspend:
        return Cause(Reason.SUSPENDED, "spec.suspend is true", this.now)
    begun = attempt.running_time is not None or (this.observed is not None and this.observed.begun)
    if begun and this.observed is not None and this.observed.suspension is not None:
        # Resumed, the same attempt would run a second time, and its program believe it to be the first.
        return Cause(Reason.SUSPENDED, _describe_suspension(this.observed.suspension), this.now)
    if this.observed is None and attempt.running_time is not None:
        # Not started again under the same number: its program would believe it to be the first.
        return Cause(Reason.HOSTS_GONE, "its hosts are gone: they were deleted from outside", this.now)
    anew = _find_made_anew(attempt, this.observed)
    if anew is not None and _was_released_since(attempt, this.observed):
        return Cause(Reason.SUSPENDED, OTHERS_RELEASE, this.now)
    if anew is not None:
        message = f"the pod of rank {anew.rank} was made anew: it or its Job was deleted from outside"
        return Cause(Reason.HOSTS_GONE, message, this.now, anew)
    release = _find_release(this, attempt)
    if release is not None and release <= this.now:
        return Cause(Reason.NODES_AVOIDED, RELEASED, release)
    return None


def _list_causes(this: _Pass, attempt: AttemptStatus, deadlines: list[Deadline]) -> list[Cause]:
    """Return what has happened to an attempt by now: limits, hosts that ended, broken workers."""
    causes = [_derive_timeout(this, d) for d in deadlines if d.at <= this.now]
    if this.observed is not None:
        own = derive_cause(this.observed)
        # Hosts that are removed by a suspension fail, which tells nothing about the program.
        if own is not None and (not this.observed.suspended or this.observed.succeeded):
            causes.append(own)
    if this.workers is not None:
        failure = derive_failure(this.job.spec.timeouts, attempt, this.workers, now=this.now)
        causes += [] if failure is None else [failure]
    return causes


def _derive_timeout(this: _Pass, deadline: Deadline) -> Cause:
    """Return why an attempt ends that has reached a limit; waiting for avoided nodes is no failure."""
    if deadline.reason is Reason.PENDING_TIMEOUT and _waits_for_avoided(this):
        return Cause(Reason.NODES_AVOIDED, f"{deadline.message}; {GIVEN_UP}", deadline.at)
    return Cause(deadline.reason, deadline.message, deadline.at)


def _while_hosts_end(
    this: _Pass, observed: GangObservation, attempt: AttemptStatus, reason: Reason
) -> Decision:
    """Return what to do until all hosts have ended; a queue may keep their JobSet for the next attempt."""
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    if describe_stop(this.job) is None and (total is None or this.now < total.at):
        wake_at = total.at if total else None
        if _is_deactivated(observed):
            return this.conclude(Outlook(Stage.DEACTIVATED), wake_at=wake_at)
        if observed.requeued and reason is Reason.SUSPENDED and not this.job.spec.suspend:
            if this.workers is not None and this.workers.left:
                action = find_removable(this.workers.left)
                return this.conclude(Outlook(Stage.ENDING), action=action, wake_at=wake_at)
            if observed.vacated:
                return _between_attempts(_closed(this, attempt, reason), kept=attempt.job_set)
            return this.conclude(Outlook(Stage.ENDING), wake_at=wake_at)
    return this.conclude(Outlook(Stage.ENDING), action=EndAttempt(attempt.number, reason))


def _is_deactivated(observed: GangObservation) -> bool:
    """Return whether its queue keeps the attempt's JobSet, which must then stay: it is what is activated."""
    waiting = observed.waiting
    return observed.suspended and waiting is not None and waiting.reason is Reason.QUEUE_DEACTIVATED


def _waits_for_avoided(this: _Pass) -> bool:
    waiting = this.observed.waiting if this.observed is not None else None
    return waiting is not None and waiting.reason is Reason.NODES_AVOIDED


def _find_release(this: _Pass, attempt: AttemptStatus) -> datetime | None:
    """Return when nodes come back that the hosts of an attempt wait for: theirs is a rule of their pods."""
    if attempt.running_time is not None or not _waits_for_avoided(this):
        return None
    return find_release(this.avoided)


def _find_made_anew(attempt: AttemptStatus, observed: GangObservation | None) -> HostObservation | None:
    """Return a host that began again after all had run: its program would believe it to be the first."""
    if attempt.running_time is None or observed is None or observed.settled:
        return None
    began = parse_time(attempt.running_time)
    for host in observed.hosts:
        # A container begins once: none of those that ran then can have begun later than the last of them.
        later = host.started_at is not None and host.started_at > began
        made_later = host.created_at is not None and host.created_at > began + CLOCK_SKEW
        if host.phase is HostPhase.STARTING or later or made_later:
            return host
    return None


def _was_released_since(attempt: AttemptStatus, observed: GangObservation | None) -> bool:
    """Return whether a suspension, which nobody saw, was lifted after all hosts had run."""
    if attempt.running_time is None or observed is None or observed.released_at is None:
        return False
    return observed.released_at > parse_time(attempt.running_time)


def _deadlines(this: _Pass, attempt: AttemptStatus) -> list[Deadline]:
    own = derive_attempt_deadline(this.job.spec.timeouts, attempt, this.observed)
    if attempt.running_time is None and _may_be_made(this):
        own = None  # who was to make its hosts was away, and that is no failure of theirs
    total = derive_total_deadline(this.job.spec.timeouts, this.job.status)
    return [deadline for deadline in (own, total) if deadline is not None]


def _may_be_made(this: _Pass) -> bool:
    """Return whether there are no hosts yet, and nothing is known to stand against making them."""
    return this.observed is None and this.refusal is None and this.unsupported is None


def _with_running_time(attempt: AttemptStatus, observed: GangObservation | None) -> AttemptStatus:
    """Record when the last host of the gang began to run, once all have."""
    if attempt.running_time is not None or observed is None:
        return attempt
    starts = [host.started_at for host in observed.hosts if host.started_at is not None]
    if len(starts) < len(observed.hosts):
        return attempt
    return attempt.model_copy(update={"running_time": format_time(max(starts))})


def _with_workers_time(attempt: AttemptStatus, this: _Pass) -> AttemptStatus:
    """Record when a worker was first seen to be ready."""
    if attempt.workers_time is not None or this.workers is None or not this.workers.ready:
        return attempt
    return attempt.model_copy(update={"workers_time": format_time(this.now)})


def _with_cause(attempt: AttemptStatus, cause: Cause) -> AttemptStatus:
    update: dict[str, object] = {"reason": cause.reason.value, "message": cause.message}
    if cause.log_tail:
        update["log_tail"] = list(cause.log_tail)
    if cause.host is not None:
        host = cause.host
        update |= {"pod": host.name, "node": host.node, "rank": host.rank, "exit_code": host.exit_code}
    return attempt.model_copy(update=update)


def _with_outcome(attempt: AttemptStatus, observed: GangObservation | None) -> AttemptStatus:
    """Record what a callable left for its client: that of the host to blame, of rank 0 where all went well.

    `rank` is None then, as it is where no host is to blame, and then there is none.
    """
    if observed is None or (attempt.rank is None and attempt.reason != Reason.COMPLETED):
        return attempt
    outcome = next((host.outcome for host in observed.hosts if host.rank == (attempt.rank or 0)), None)
    return attempt if outcome is None else attempt.model_copy(update={"outcome": outcome})


def _revised(attempt: AttemptStatus, observed: GangObservation) -> AttemptStatus:
    """Return an attempt that is ending with what has since come to light about why."""
    if observed.suspension is not None:
        message = _describe_suspension(observed.suspension)
        changes = {"reason": Reason.SUSPENDED.value, "message": message, "log_tail": []}
        return attempt.model_copy(update=changes)
    disruption = describe_disruption(observed)
    if disruption is None:
        return attempt
    message = f"{attempt.message or ''}; {disruption}"
    return attempt.model_copy(update={"reason": Reason.DISRUPTED.value, "message": message})


def _describe_suspension(suspension: Suspension) -> str:
    return OTHERS_SUSPENSION if suspension.evidence is None else suspension.evidence.text


def _closed(this: _Pass, attempt: AttemptStatus, reason: Reason) -> _Pass:
    """Return the pass after the attempt's end: verdict in the status, its budget charged once."""
    verdict = REASONS[reason].charge or VerdictKind.FAILURE
    ends = (
        [host.ended_at for host in this.observed.hosts if host.ended_at is not None] if this.observed else []
    )
    # A node's clock may be far off, or tell nothing (1970), and the pause before the next attempt counts from
    # this end.
    end = min(max(ends, default=this.now), this.now)
    if attempt.start_time is not None and end < parse_time(attempt.start_time) - CLOCK_SKEW:
        end = this.now
    changes = {"verdict": verdict.value, "end_time": format_time(end), "disruption": None}
    closed = attempt.model_copy(update=changes)
    this = replace(this, attempts=(*this.attempts[:-1], closed), counts=charge(this.counts, verdict))
    if not this.policy.avoid_seconds:
        return this
    until = this.now + timedelta(seconds=this.policy.avoid_seconds)
    if reason is Reason.NODES_AVOIDED and drop_expired(this.avoided, this.now) == this.avoided:
        # It has waited to its limit, and none of them comes back by itself: better these than no nodes.
        return replace(this, avoided=())
    return replace(this, avoided=add_avoided(this.avoided, this.attempts, this.job.spec, until=until))
