"""In which ways each attempt of a job may go, from what is done to it. What follows is `e2e.chaos.oracle`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from e2e.chaos import oracle
from e2e.chaos.oracle import DELETED, Budgets, End, Ended, Way, exited
from fray.vocabulary import Phase, Reason, VerdictKind
from tests.faults.scenario import Act, Kind, Plan

__all__ = ["predict"]


def _failed(reason: Reason, code: int | None = None, rank: int | None = None) -> Ended:
    codes = frozenset[int | None]() if code is None else frozenset({code})
    return Ended(VerdictKind.FAILURE, frozenset({reason}), codes, rank)


HOSTS_GONE = Ended(VerdictKind.PREEMPTION, frozenset({Reason.HOSTS_GONE}))
PLAIN = {
    Kind.SUCCEED: oracle.SUCCEEDED,
    Kind.EVICT: oracle.TAKEN_AWAY,
    Kind.SHUT_DOWN: Ended(VerdictKind.PREEMPTION, frozenset({Reason.DISRUPTED})),
    Kind.DELETE_POD: HOSTS_GONE,
    Kind.DELETE_JOBSET: HOSTS_GONE,
    Kind.SUSPEND_JOBSET: oracle.SUSPENDED,
    Kind.SUSPEND: oracle.SUSPENDED,
    Kind.MISPLACE: Ended(VerdictKind.MISPLACEMENT, frozenset({Reason.EXCLUSIVE_PLACEMENT_VIOLATION})),
    Kind.NEVER_PLACED: _failed(Reason.PENDING_TIMEOUT),
    Kind.RUN_TOO_LONG: _failed(Reason.ACTIVE_TIMEOUT),
    Kind.RUN_FOREVER: _failed(Reason.TOTAL_TIMEOUT),
    Kind.STOP: oracle.STOPPED,
}
AFTERWARDS = {
    Kind.STOP: Phase.STOPPED,
    Kind.CRASH_AND_STOP: Phase.STOPPED,
    Kind.CRASH_THEN_STOP: Phase.STOPPED,
    Kind.CRASH_THEN_DELETE: DELETED,
}
"""What its user does to a job before another attempt begins."""


def predict(plan: Plan, *, interrupted: Set[int], outlasted: Set[int] = frozenset()) -> frozenset[End]:
    """Return the ends that a job may have; one, but for those whose acts race.

    `interrupted` are the attempts after which the user was in time to do something before the next, and
    `outlasted` those that may have been over their limit before anything was done to them.
    """

    def ways(number: int) -> Iterator[Way]:
        act = plan.act(number)
        if act.kind in (Kind.DELETE, Kind.DELETE_EARLY):
            yield Way(None, DELETED)
            return
        if act.kind is Kind.STOP_EARLY:
            yield from (Way(None, Phase.STOPPED), Way(oracle.STOPPED))
            return
        in_time = number in interrupted or act.kind in (Kind.STOP, Kind.CRASH_AND_STOP)
        too_long = number in outlasted and "activeSeconds" in plan.spec.get("timeouts", {})
        for ended in (*_endings(act, plan), *([PLAIN[Kind.RUN_TOO_LONG]] if too_long else [])):
            yield Way(ended, AFTERWARDS.get(act.kind) if in_time else None)

    return oracle.predict(Budgets(**plan.spec["retries"]), ways)


def _endings(act: Act, plan: Plan) -> Sequence[Ended]:
    """Return how an attempt may end by what is done to it."""
    if act.kind in PLAIN:
        return [PLAIN[act.kind]]
    crash = exited(act.code, rank=act.rank)
    match act.kind:
        case Kind.SUCCEED_AND_STOP:
            return [oracle.SUCCEEDED, oracle.STOPPED]
        case Kind.CRASH_AND_STOP:
            return [crash, oracle.STOPPED]
        case Kind.SIGNAL:
            return [_failed(Reason.KILLED_BY_SIGNAL, 139, act.rank)]
        case Kind.OUT_OF_MEMORY:
            return [_failed(Reason.OUT_OF_MEMORY, 137, act.rank)]
        case Kind.CRASH_ALL if plan.slices > 1:
            # When its peers' Job fails first, JobSet deletes the Job of the host that crashed, and its pod.
            return [crash, exited(1)]
        case _:
            return [crash]
