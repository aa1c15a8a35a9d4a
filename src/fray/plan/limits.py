"""Limits of a job: retries by `spec.retries`, pauses between attempts, and the times of `spec.timeouts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.observation import GangObservation
from fray.plan.settings import RetryPolicy
from fray.plan.timestamps import parse_time
from fray.vocabulary import Reason, VerdictKind
from fray.wire.frayjob import Retries, Timeouts
from fray.wire.status import AttemptStatus, FrayJobStatus, RetryCounts

__all__ = [
    "Budget",
    "Deadline",
    "charge",
    "derive_attempt_deadline",
    "derive_budget",
    "derive_delay",
    "derive_total_deadline",
    "is_misplaced_for_good",
]

MISPLACEMENTS = 10
"""Attempts that may end because hosts of a slice stood in another slice's node pool."""
PAUSED = frozenset({VerdictKind.FAILURE, VerdictKind.PREEMPTION, VerdictKind.MISPLACEMENT})
"""Verdicts after which the next attempt waits."""


@dataclass(frozen=True)
class Budget:
    """One budget: its field in spec.retries, how many retries it allows, and how many were charged to it."""

    field: str
    allowed: int
    used: int

    @property
    def exhausted(self) -> bool:
        """Whether the attempts charged to it outnumber its retries."""
        return self.used > self.allowed

    def describe(self) -> str:
        """Return the state of the budget in a few words."""
        if self.allowed == 0:
            return f"spec.retries.{self.field} allows no retry"
        return f"{min(self.used, self.allowed)} of {self.allowed} retries for {self.field} used"


def charge(counts: RetryCounts, verdict: VerdictKind) -> RetryCounts:
    """Return the counts after an attempt with this verdict; successes, stops and suspensions are free."""
    match verdict:
        case VerdictKind.FAILURE:
            return counts.model_copy(update={"failures_used": counts.failures_used + 1})
        case VerdictKind.PREEMPTION:
            return counts.model_copy(update={"preemptions_used": counts.preemptions_used + 1})
        case VerdictKind.MISPLACEMENT:
            return counts.model_copy(update={"misplacements_used": (counts.misplacements_used or 0) + 1})
        case _:
            return counts


def derive_budget(retries: Retries, counts: RetryCounts, verdict: VerdictKind) -> Budget | None:
    """Return the budget that pays for a verdict; None for verdicts that are free."""
    match verdict:
        case VerdictKind.FAILURE:
            return Budget("failures", retries.failures, counts.failures_used)
        case VerdictKind.PREEMPTION:
            return Budget("preemptions", retries.preemptions, counts.preemptions_used)
        case _:
            return None


def is_misplaced_for_good(counts: RetryCounts, verdict: VerdictKind) -> bool:
    """Return whether an attempt ended by misplacement, and so have too many."""
    return verdict is VerdictKind.MISPLACEMENT and (counts.misplacements_used or 0) >= MISPLACEMENTS


def derive_delay(attempts: Sequence[AttemptStatus], policy: RetryPolicy) -> float:
    """Return the pause in seconds after the last of `attempts`: longer, the more ended alike in a row."""
    if not attempts or attempts[-1].verdict not in PAUSED:
        return 0.0
    in_a_row = 0
    for attempt in reversed(attempts):
        if attempt.verdict != attempts[-1].verdict:
            break
        in_a_row += 1
    return policy.delay(in_a_row)


@dataclass(frozen=True)
class Deadline:
    """A moment after which an attempt or a job is ended, and why; `message` is a whole clause."""

    at: datetime
    reason: Reason
    message: str


def derive_attempt_deadline(
    timeouts: Timeouts, attempt: AttemptStatus, observed: GangObservation | None
) -> Deadline | None:
    """Return the limit that an attempt is under: `pendingSeconds` until all hosts run, then `activeSeconds`.

    None limits an attempt whose hosts may not start yet: how long a queue is, is nothing that it can help.
    Nor is how late its hosts were asked for.
    """
    if attempt.running_time is not None:
        if timeouts.active_seconds is None:
            return None
        at = parse_time(attempt.running_time) + timedelta(seconds=timeouts.active_seconds)
        message = f"the hosts ran longer than spec.timeouts.activeSeconds ({timeouts.active_seconds})"
        return Deadline(at, Reason.ACTIVE_TIMEOUT, message)
    if timeouts.pending_seconds is None or attempt.start_time is None:
        return None
    if observed is not None and observed.held:
        return None
    begun = parse_time(attempt.start_time)
    if observed is not None:
        begun = observed.released_at or max(begun, observed.created_at or begun)
    at = begun + timedelta(seconds=timeouts.pending_seconds)
    message = f"not all hosts ran within spec.timeouts.pendingSeconds ({timeouts.pending_seconds})"
    return Deadline(at, Reason.PENDING_TIMEOUT, message)


def derive_total_deadline(timeouts: Timeouts, status: FrayJobStatus) -> Deadline | None:
    """Return the limit of the whole job, which counts from its first attempt and includes every pause."""
    if timeouts.total_seconds is None or status.start_time is None:
        return None
    at = parse_time(status.start_time) + timedelta(seconds=timeouts.total_seconds)
    message = f"the job took longer than spec.timeouts.totalSeconds ({timeouts.total_seconds})"
    return Deadline(at, Reason.TOTAL_TIMEOUT, message)
