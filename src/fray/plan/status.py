"""What to tell about a job: conditions, phase and counts, derived anew on each pass, and when it is written.

Nothing decided elsewhere is decided again here: `lifecycle` says how things stand (`Outlook`), this
module puts it in the words of the status. Attempts and retry counts pass through, for they are state.
Messages never hold the current time, so that a status changes only when something has happened. News is
written at once, replica counts after a delay: the hosts of a gang start and end one by one, and each would be
a write of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from fray.plan.gang import derive_gang
from fray.plan.observation import GangObservation, HostPhase, Waiting
from fray.plan.reasons import REASONS, get_row
from fray.plan.timestamps import format_time
from fray.plan.worker_observation import WorkersObservation
from fray.plan.workers import derive_wanted, derive_worker_counts, has_workers
from fray.vocabulary import (
    EXIT_FAILURE,
    EXIT_SIGNAL_BASE,
    EXIT_TIMEOUT,
    ActorReason,
    ConditionType,
    Phase,
    Reason,
)
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, Condition, FrayJobStatus, ReplicaCounts, RetryCounts

__all__ = [
    "Claim",
    "Ending",
    "Outlook",
    "Stage",
    "StatusWrite",
    "build_conditions",
    "derive_exit_code",
    "derive_status",
    "derive_write_time",
    "find_condition",
    "has_succeeded",
    "is_finished",
    "record_write",
    "with_unreadable",
]

SUSPENDED = "spec.suspend is true"
SIGTERM = 15
"""What hosts get where another shell, or another program, stops a job."""

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(seconds=30)
HOST_DELAY = timedelta(milliseconds=10)
"""Thousands of hosts take minutes to start and to end: of few of them at a time no count needs to tell."""


class Stage(Enum):
    """Where a job stands between its first attempt and its end."""

    STARTING = auto()
    """An attempt was begun; its hosts are yet to be created."""
    LIVE = auto()
    ENDING = auto()
    """An attempt has a reason to end; its hosts are being terminated."""
    BACKING_OFF = auto()
    SUSPENDED = auto()
    DEACTIVATED = auto()
    """Its queue has evicted the last attempt, and lets no other one run until somebody says so."""
    UNSUPPORTED = auto()
    """The job asks for something that can't be done; nothing is started."""
    FINISHED = auto()


@dataclass(frozen=True)
class Ending:
    """How the whole job ended: Succeeded, Failed or Stopped, why, and the story in a sentence."""

    type: ConditionType
    reason: Reason
    message: str


@dataclass(frozen=True)
class Outlook:
    """How things stand. `until` belongs to BACKING_OFF, `ending` to FINISHED.

    `waiting` says why hosts that should run don't, where that is known; `unsupported` why none may. `workers`
    are those of an attempt, None where there is none.
    """

    stage: Stage
    until: datetime | None = None
    ending: Ending | None = None
    waiting: Waiting | None = None
    unsupported: Waiting | None = None
    workers: WorkersObservation | None = None


def find_condition(status: FrayJobStatus, kind: ConditionType) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def is_finished(status: FrayJobStatus) -> bool:
    """Return whether the job has ended for good."""
    return _holds(status, ConditionType.FINISHED)


def has_succeeded(status: FrayJobStatus) -> bool:
    """Return whether the job has ended for good, and well."""
    return _holds(status, ConditionType.SUCCEEDED)


def derive_exit_code(status: FrayJobStatus, *, signal_number: int | None = None) -> int:
    """Return the exit code of a finished job, as a shell gets it and its errors hold it.

    0 for success, the first cause's own code for a failure, 124 for a time limit, 128 + N for a signal:
    `signal_number` is the signal that stopped it, if one did.
    """
    if has_succeeded(status):
        return 0
    if _holds(status, ConditionType.STOPPED):
        return EXIT_SIGNAL_BASE + (SIGTERM if signal_number is None else signal_number)
    if get_row(status.reason).timeout:
        return EXIT_TIMEOUT
    code = status.attempts[-1].exit_code if status.attempts else None
    # A host can't have failed with 0; a file that says so must not turn a failure into a success.
    return code or EXIT_FAILURE


def _holds(status: FrayJobStatus, kind: ConditionType) -> bool:
    condition = find_condition(status, kind)
    return condition is not None and condition.status == "True"


def derive_status(
    job: FrayJob,
    observed: GangObservation | None,
    attempts: Sequence[AttemptStatus],
    counts: RetryCounts,
    outlook: Outlook,
    now: datetime,
) -> FrayJobStatus:
    """Return the status that tells how a job stands; `job.status` is the one before."""
    previous = job.status
    replicas = _count(job, observed, previous, outlook)
    claims = [*_claims(job, replicas, observed, attempts, outlook), *_suspension(outlook, previous)]
    claims += _workers(job, outlook)
    running = next(claim for claim in claims if claim.type is ConditionType.RUNNING)
    return FrayJobStatus(
        phase=_phase(attempts, outlook, started=_all_started(observed)).value,
        attempt=attempts[-1].number if attempts else None,
        reason=(outlook.ending.reason if outlook.ending else running.reason).value,
        observed_generation=job.metadata.generation,
        start_time=previous.start_time or (attempts[0].start_time if attempts else None),
        completion_time=format_time(now) if outlook.stage is Stage.FINISHED else None,
        conditions=build_conditions(claims, previous.conditions, generation=job.metadata.generation, now=now),
        ready=f"{replicas.running}/{replicas.total}",
        replicas=replicas,
        workers=derive_worker_counts(job, outlook.workers.jobs if outlook.workers else ()),
        attempts=list(attempts),
        avoided_nodes=previous.avoided_nodes,
        retries=counts,
    )


def with_unreadable(status: FrayJobStatus, job: FrayJob, why: str, now: datetime) -> FrayJobStatus:
    """Return a status with the condition that says why it can't be judged by."""
    claim = Claim(ConditionType.STATUS_READABLE, False, Reason.STATUS_UNREADABLE, why)
    others = [one for one in status.conditions if one.type != claim.type]
    conditions = build_conditions([claim], job.status.conditions, generation=job.metadata.generation, now=now)
    return status.model_copy(update={"conditions": [*others, *conditions]})


def _count(
    job: FrayJob, observed: GangObservation | None, previous: FrayJobStatus, outlook: Outlook
) -> ReplicaCounts:
    if observed is not None:
        return ReplicaCounts(
            total=len(observed.hosts),
            pending=sum(host.pending for host in observed.hosts),
            running=sum(host.phase is HostPhase.RUNNING for host in observed.hosts),
            succeeded=sum(host.phase is HostPhase.SUCCEEDED for host in observed.hosts),
            failed=sum(host.failed for host in observed.hosts),
        )
    if previous.replicas is not None and outlook.stage is not Stage.STARTING:
        # Hosts that were removed before they ended neither run nor wait any more.
        return previous.replicas.model_copy(update={"pending": 0, "running": 0})
    total = derive_gang(job.spec).hosts
    pending = total if outlook.stage is Stage.STARTING else 0
    return ReplicaCounts(total=total, pending=pending, running=0, succeeded=0, failed=0)


def _all_started(observed: GangObservation | None) -> bool:
    return observed is not None and not any(host.pending for host in observed.hosts)


def _phase(attempts: Sequence[AttemptStatus], outlook: Outlook, *, started: bool) -> Phase:
    match outlook.stage:
        case Stage.FINISHED:
            assert outlook.ending is not None
            return Phase(outlook.ending.type.value)
        case Stage.SUSPENDED | Stage.DEACTIVATED:
            return Phase.SUSPENDED
        case Stage.ENDING:
            return Phase.STOPPING
        case Stage.LIVE if started:
            return Phase.RUNNING
        case _:
            first = not attempts or (attempts[-1].number == 1 and attempts[-1].verdict is None)
            return Phase.PENDING if first else Phase.RESTARTING


def _claims(
    job: FrayJob,
    replicas: ReplicaCounts,
    observed: GangObservation | None,
    attempts: Sequence[AttemptStatus],
    outlook: Outlook,
) -> list[Claim]:
    asked = f"the job asks for {derive_gang(job.spec).describe()}"
    accepted = Claim(ConditionType.ACCEPTED, True, Reason.VALID, asked)
    if outlook.unsupported is not None:
        accepted = replace(
            accepted, holds=False, reason=outlook.unsupported.reason, message=outlook.unsupported.message
        )
    placed, running = _progress(replicas, observed, attempts, outlook, job.status)
    ending = outlook.ending
    if ending is None:
        finished = Claim(ConditionType.FINISHED, False, Reason.IN_PROGRESS, "the job has not ended yet")
        return [accepted, placed, running, finished]
    return [
        accepted,
        placed,
        running,
        Claim(ConditionType.FINISHED, True, ending.reason, ending.message),
        Claim(ending.type, True, ending.reason, ending.message),
    ]


def _suspension(outlook: Outlook, previous: FrayJobStatus) -> list[Claim]:
    """Return the condition Suspended, once it has been True."""
    if outlook.stage is Stage.SUSPENDED:
        return [Claim(ConditionType.SUSPENDED, True, Reason.SUSPENDED, SUSPENDED)]
    if outlook.stage is Stage.DEACTIVATED and outlook.waiting is not None:
        return [Claim(ConditionType.SUSPENDED, True, outlook.waiting.reason, outlook.waiting.message)]
    if find_condition(previous, ConditionType.SUSPENDED) is None:
        return []
    if outlook.stage is Stage.FINISHED:
        return [Claim(ConditionType.SUSPENDED, False, Reason.ENDED, "the job has ended")]
    return [Claim(ConditionType.SUSPENDED, False, Reason.IN_PROGRESS, "the job is not suspended")]


def _workers(job: FrayJob, outlook: Outlook) -> list[Claim]:
    """Return the condition WorkersReady of a job that can have workers."""
    if not has_workers(job.spec):
        return []
    kind = ConditionType.WORKERS_READY
    if outlook.stage is Stage.FINISHED:
        return [Claim(kind, False, Reason.ENDED, "the job has ended")]
    if outlook.stage is not Stage.LIVE:
        return [Claim(kind, False, Reason.WORKERS_STARTING, "there are workers while an attempt runs")]
    observed = outlook.workers or WorkersObservation()
    wanted = derive_wanted(job.spec)
    message = f"{min(observed.ready, wanted)} of {wanted} workers take tasks"
    if observed.ready >= wanted:
        return [Claim(kind, True, Reason.ALL_WORKERS_READY, message)]
    waiting = observed.waiting
    if waiting is None:
        return [Claim(kind, False, Reason.WORKERS_STARTING, message)]
    return [Claim(kind, False, waiting.reason, f"{message}: {waiting.message}")]


def _progress(
    replicas: ReplicaCounts,
    observed: GangObservation | None,
    attempts: Sequence[AttemptStatus],
    outlook: Outlook,
    previous: FrayJobStatus,
) -> tuple[Claim, Claim]:
    """Return the conditions Scheduled and Running."""
    number = attempts[-1].number if attempts else 0
    starting = f"{replicas.pending} of {replicas.total} hosts are starting"
    waiting = outlook.waiting or Waiting(Reason.HOSTS_STARTING, starting)
    before = find_condition(previous, ConditionType.RUNNING)
    if waiting.vague and before is not None and before.reason == waiting.reason:
        waiting = replace(waiting, message=before.message)
    match outlook.stage:
        case Stage.STARTING | Stage.DEACTIVATED:
            return _neither(waiting.reason, waiting.message)
        case Stage.SUSPENDED:
            return _neither(Reason.SUSPENDED, SUSPENDED)
        case Stage.UNSUPPORTED:
            assert outlook.unsupported is not None
            return _neither(outlook.unsupported.reason, "the job was not accepted")
        case Stage.BACKING_OFF:
            assert outlook.until is not None
            when = f"attempt {number + 1} starts at {format_time(outlook.until)}"
            return _neither(Reason.BACK_OFF, f"attempt {number} ended: {attempts[-1].message or ''}; {when}")
        case Stage.FINISHED:
            return _neither(Reason.ENDED, "the job has ended")
    all_placed = f"all {replicas.total} hosts have a node" if replicas.total > 1 else "the host has a node"
    placed = Claim(ConditionType.SCHEDULED, True, Reason.ALL_HOSTS_PLACED, all_placed)
    unplaced = _count_unplaced(observed, replicas)
    if unplaced and ConditionType.SCHEDULED not in REASONS[waiting.reason].stands_on:
        # Some hosts have a node, and trouble there; of those that have none nothing is known yet.
        message = f"{unplaced} of {replicas.total} hosts have no node yet"
        placed = Claim(ConditionType.SCHEDULED, False, Reason.HOSTS_STARTING, message)
    elif unplaced:
        placed = Claim(ConditionType.SCHEDULED, False, waiting.reason, waiting.message)
    if outlook.stage is Stage.ENDING:
        neither = _neither(Reason.STOPPING, f"attempt {number} is ending: {attempts[-1].message or ''}")
        return neither if unplaced else (placed, neither[1])
    if replicas.pending:
        return placed, Claim(ConditionType.RUNNING, False, waiting.reason, waiting.message)
    ended = f", {replicas.succeeded} ended well" if replicas.succeeded else ""
    message = f"{replicas.running} of {replicas.total} hosts run{ended} (attempt {number})"
    if observed is not None and observed.failing_sidecar is not None:
        message = f"{message}; {observed.failing_sidecar}"
        return placed, Claim(ConditionType.RUNNING, True, Reason.SIDECAR_FAILING, message)
    return placed, Claim(ConditionType.RUNNING, True, Reason.ALL_HOSTS_RUNNING, message)


def _count_unplaced(observed: GangObservation | None, replicas: ReplicaCounts) -> int:
    if observed is None:
        return replicas.total
    return sum(host.node is None and host.pending for host in observed.hosts)


def _neither(reason: Reason, message: str) -> tuple[Claim, Claim]:
    return (
        Claim(ConditionType.SCHEDULED, False, reason, message),
        Claim(ConditionType.RUNNING, False, reason, message),
    )


@dataclass(frozen=True)
class Claim:
    """A condition without its history."""

    type: ConditionType
    holds: bool
    reason: Reason | ActorReason
    message: str


def build_conditions(
    claims: Iterable[Claim], previous: Sequence[Condition], *, generation: int | None, now: datetime
) -> list[Condition]:
    """Return conditions whose transition time is kept while their status stays the same."""
    conditions = []
    for claim in claims:
        status = "True" if claim.holds else "False"
        before = next((each for each in previous if each.type == claim.type), None)
        since = (
            before.last_transition_time
            if before is not None and before.status == status
            else format_time(now)
        )
        conditions.append(
            Condition(
                type=claim.type.value,
                status=status,
                reason=claim.reason.value,
                message=claim.message,
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return conditions


@dataclass(frozen=True)
class StatusWrite:
    """When a job's status was written last, and when a write last changed its phase or attempt."""

    at: datetime
    phase_at: datetime


def derive_write_time(
    before: FrayJobStatus, after: FrayJobStatus, last: StatusWrite | None, *, now: datetime
) -> datetime:
    """Return the time from which `after` may replace `before`; `now` when it must not wait.

    Only replica counts, and messages of conditions that keep their reason, wait: until 1 s after the write
    that changed the phase, then 2, 4, 8 s and at most 30 s after the write before; that of more than 100
    hosts waits from the start for as long as 10 ms for each. `last` is None where this process has not
    written the status yet.
    """
    if last is None or _without_counts(before) != _without_counts(after):
        return now
    hosts = after.replicas.total if after.replicas is not None else 0
    first = max(FIRST_DELAY, HOST_DELAY * hosts)
    return last.at + min(LONGEST_DELAY, first + (last.at - last.phase_at))


def record_write(
    before: FrayJobStatus, after: FrayJobStatus, last: StatusWrite | None, *, now: datetime
) -> StatusWrite:
    """Return the record of a write of `after` over `before`, as `last` for the next one."""
    same = (before.phase, before.attempt) == (after.phase, after.attempt)
    return StatusWrite(now, last.phase_at if last is not None and same else now)


def _without_counts(status: FrayJobStatus) -> FrayJobStatus:
    conditions = [condition.model_copy(update={"message": ""}) for condition in status.conditions]
    workers = status.workers
    if workers is not None:
        workers = workers.model_copy(update={"replicas": 0, "ready": 0, "draining": 0})
    counts = {"replicas": None, "ready": None, "workers": workers}
    return status.model_copy(update={**counts, "conditions": conditions})
