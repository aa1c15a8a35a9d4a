"""How a job must end, from what was done to it: a small model of its own, which shares no code with Fray.

What is undecided in truth (a stop that comes as a host crashes) has several ends, each whole in itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from tests.faults.scenario import Act, Kind, Plan

__all__ = ["DELETED", "End", "Ended", "predict"]


@dataclass(frozen=True)
class Ended:
    """One attempt's end; `reasons` are those that it may be told for.

    `code` is the exit code that must be told, and `rank` whose it is; None where any may be.
    """

    verdict: str
    reasons: frozenset[str]
    code: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class End:
    """The end of a job; `phase` is Deleted for one that isn't there any more."""

    phase: str
    attempts: tuple[Ended, ...] = ()

    def count(self, verdict: str) -> int:
        """Return how many attempts were charged as this."""
        return sum(attempt.verdict == verdict for attempt in self.attempts)


DELETED = End("Deleted")
STOPPED = Ended("Stopped", frozenset({"StopRequested"}))
SUSPENDED = Ended("Suspended", frozenset({"Suspended"}))
TAKEN = frozenset({"Disrupted", "HostsGone"})
"""An evicted pod that was gone before anybody looked may have left nothing but peers that were deleted."""
PLAIN = {
    Kind.SUCCEED: Ended("Success", frozenset({"Completed"})),
    Kind.EVICT: Ended("Preemption", TAKEN),
    Kind.SHUT_DOWN: Ended("Preemption", frozenset({"Disrupted"})),
    Kind.DELETE_POD: Ended("Preemption", frozenset({"HostsGone"})),
    Kind.DELETE_JOBSET: Ended("Preemption", frozenset({"HostsGone"})),
    Kind.SUSPEND_JOBSET: SUSPENDED,
    Kind.SUSPEND: SUSPENDED,
    Kind.MISPLACE: Ended("Misplacement", frozenset({"ExclusivePlacementViolation"})),
    Kind.NEVER_PLACED: Ended("Failure", frozenset({"PendingTimeout"})),
    Kind.RUN_TOO_LONG: Ended("Failure", frozenset({"ActiveTimeout"})),
    Kind.RUN_FOREVER: Ended("Failure", frozenset({"TotalTimeout"})),
    Kind.STOP: STOPPED,
}
CODES = {Kind.SIGNAL: (139, "KilledBySignal"), Kind.OUT_OF_MEMORY: (137, "OutOfMemory")}


def predict(plan: Plan, *, interrupted: Set[int], outlasted: Set[int] = frozenset()) -> tuple[End, ...]:
    """Return the ends that a job may have; one, but for those whose acts race.

    `interrupted` are the attempts after which the user was in time to do something before the next, and
    `outlasted` those that may have been over their limit before anything was done to them.
    """
    return tuple(_walk(plan, interrupted, outlasted, End("Running")))


def _walk(plan: Plan, interrupted: Set[int], outlasted: Set[int], so_far: End) -> Iterator[End]:
    number = len(so_far.attempts) + 1
    act = plan.act(number)
    if act.kind in (Kind.DELETE, Kind.DELETE_EARLY):
        yield DELETED
        return
    if act.kind is Kind.STOP_EARLY:
        yield End("Stopped")
        yield End("Stopped", (STOPPED,))
        return
    endings = list(_endings(act, plan))
    if number in outlasted and "activeSeconds" in plan.spec.get("timeouts", {}):
        endings.append(PLAIN[Kind.RUN_TOO_LONG])
    for ended in endings:
        after = replace(so_far, attempts=(*so_far.attempts, ended))
        phase = _judge(plan, after)
        between = act.kind if number in interrupted else None
        if phase is not None:
            yield replace(after, phase=phase)
        elif act.kind is Kind.CRASH_AND_STOP or between is Kind.CRASH_THEN_STOP:
            yield replace(after, phase="Stopped")
        elif between is Kind.CRASH_THEN_DELETE:
            yield DELETED
        else:
            yield from _walk(plan, interrupted, outlasted, after)


def _endings(act: Act, plan: Plan) -> Sequence[Ended]:
    """Return how an attempt may end by what is done to it."""
    if act.kind in PLAIN:
        return [PLAIN[act.kind]]
    if act.kind is Kind.SUCCEED_AND_STOP:
        return [PLAIN[Kind.SUCCEED], STOPPED]
    code, reason = CODES.get(act.kind, (act.code, "NonZeroExit"))
    crash = Ended("Failure", frozenset({reason}), code, act.rank)
    if act.kind is Kind.CRASH_AND_STOP:
        return [crash, STOPPED]
    if act.kind is Kind.CRASH_ALL and plan.slices > 1:
        # When its peers' Job fails first, JobSet deletes the Job of the host that crashed, and its pod.
        return [crash, Ended("Failure", frozenset({"NonZeroExit"}), 1)]
    return [crash]


def _judge(plan: Plan, after: End) -> str | None:
    """Return the phase in which a job is over, None while another attempt follows."""
    retries: Any = plan.spec["retries"]
    last = after.attempts[-1]
    if last.verdict == "Success":
        return "Succeeded"
    if last.verdict == "Stopped":
        return "Stopped"
    exhausted = {
        "Failure": after.count("Failure") > retries["failures"],
        "Preemption": after.count("Preemption") > retries["preemptions"],
    }
    return "Failed" if exhausted.get(last.verdict) or last.reasons == {"TotalTimeout"} else None
