"""How a job must end, from what was done to it: one model of a job's life for all suites that harm jobs.

Pure, and a model of its own: it shares nothing with what decides in Fray but the words of its API. A suite
says in which ways each attempt may go; `predict` returns the ends that follow. What is undecided in truth (a
stop that comes as a host crashes) has several ends, each whole in itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fray.vocabulary import ConditionType, Phase, Reason, VerdictKind

__all__ = [
    "CHARGES",
    "DELETED",
    "STOPPED",
    "SUCCEEDED",
    "SUSPENDED",
    "TAKEN_AWAY",
    "Budgets",
    "End",
    "Ended",
    "Way",
    "exited",
    "find_mismatch",
    "find_regressions",
    "is_finished",
    "predict",
]

Manifest = Mapping[str, Any]

DELETED = "Deleted"
"""In place of a phase: the FrayJob is no more."""
KEPT_ATTEMPTS = 10
"""How many attempts a status tells of at most: the last ones."""
MOST_ATTEMPTS = 60
CHARGES: Mapping[VerdictKind, str] = {
    VerdictKind.FAILURE: "failuresUsed",
    VerdictKind.PREEMPTION: "preemptionsUsed",
    VerdictKind.MISPLACEMENT: "misplacementsUsed",
}
"""Where a status counts the attempts that were charged to a budget."""


@dataclass(frozen=True)
class Ended:
    """How an attempt may end: the `reasons` and exit `codes` that may be told of it, and by whose `rank`.

    A code of None is none. Without `codes`, or without a `rank`, any may be told.
    """

    verdict: VerdictKind
    reasons: frozenset[Reason]
    codes: frozenset[int | None] = frozenset()
    rank: int | None = None

    def allows(self, attempt: Manifest) -> bool:
        """Return whether an attempt of a status ended like this."""
        return (
            attempt.get("verdict") == self.verdict
            and attempt.get("reason") in self.reasons
            and (not self.codes or attempt.get("exitCode") in self.codes)
            and self.rank in (None, attempt.get("rank"))
        )

    def __str__(self) -> str:
        codes = " or ".join(map(str, self.codes)) or "any"
        return _tell_attempt(self.verdict, " or ".join(sorted(self.reasons)), codes, self.rank)


_NO_CODE = frozenset({None})
SUCCEEDED = Ended(VerdictKind.SUCCESS, frozenset({Reason.COMPLETED}), _NO_CODE)
STOPPED = Ended(VerdictKind.STOPPED, frozenset({Reason.STOP_REQUESTED}), _NO_CODE)
SUSPENDED = Ended(VerdictKind.SUSPENDED, frozenset({Reason.SUSPENDED}), _NO_CODE)
TAKEN_AWAY = Ended(VerdictKind.PREEMPTION, frozenset({Reason.DISRUPTED, Reason.HOSTS_GONE}))
"""A pod that was gone before anybody looked may have left nothing but peers that were deleted."""


def exited(code: int, *, rank: int | None = None) -> Ended:
    """Return how an attempt ends whose hosts exit by themselves, the first that fails with this code."""
    if code == 0:
        return SUCCEEDED
    return Ended(VerdictKind.FAILURE, frozenset({Reason.NON_ZERO_EXIT}), frozenset({code}), rank)


@dataclass(frozen=True)
class End:
    """How a job may end: its phase, and its attempts; `DELETED` for one that isn't there any more."""

    phase: str
    attempts: tuple[Ended, ...] = ()

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What each attempt was charged to."""
        return tuple(attempt.verdict.value for attempt in self.attempts)

    def count(self, verdict: VerdictKind) -> int:
        """Return how many attempts were charged to it."""
        return self.verdicts.count(verdict)

    def __str__(self) -> str:
        return _tell(self.phase, self.verdicts)


@dataclass(frozen=True)
class Way:
    """One way in which an attempt may go: how it ended, None if it never began, and its user's act after it.

    `then` is the phase of a job that was stopped or deleted before its next attempt; None where it goes on.
    """

    ended: Ended | None
    then: str | None = None


@dataclass(frozen=True)
class Budgets:
    """How many failures and preemptions a job may have."""

    failures: int
    preemptions: int


def predict(budgets: Budgets, ways: Callable[[int], Iterable[Way]]) -> frozenset[End]:
    """Return all ends that a job may come to; empty when it can't have ended.

    `ways` returns those of an attempt by its number, from 1 on.
    """
    ends: set[End] = set()
    open_ends: list[tuple[Ended, ...]] = [()]
    while open_ends:
        before = open_ends.pop()
        for way in ways(len(before) + 1):
            attempts = before if way.ended is None else (*before, way.ended)
            phase = way.then if way.ended is None else _derive_phase(attempts, budgets) or way.then
            if phase is not None:
                ends.add(End(phase, () if phase == DELETED else attempts))
            elif len(attempts) < MOST_ATTEMPTS:
                open_ends.append(attempts)
    return frozenset(ends)


def _derive_phase(attempts: Sequence[Ended], budgets: Budgets) -> str | None:
    """Return the phase in which a job is over after these attempts, None while another follows."""
    end, last = End("", tuple(attempts)), attempts[-1]
    match last.verdict:
        case VerdictKind.SUCCESS:
            return Phase.SUCCEEDED
        case VerdictKind.STOPPED:
            return Phase.STOPPED
        case VerdictKind.FAILURE:
            over = end.count(VerdictKind.FAILURE) > budgets.failures or last.reasons == {Reason.TOTAL_TIMEOUT}
        case VerdictKind.PREEMPTION:
            over = end.count(VerdictKind.PREEMPTION) > budgets.preemptions
        case _:
            over = False
    return Phase.FAILED if over else None


def find_mismatch(ends: Iterable[End], status: Manifest | None) -> str | None:
    """Return in words how a job differs from all ends it may come to, None when it is as one of them.

    `status` is the last one of the job; None for one that was deleted.
    """
    ends = sorted(ends, key=str)
    predicted = f"; predicted: {' or '.join(map(str, ends)) or 'no end'}"
    if status is None:
        return None if any(end.phase == DELETED for end in ends) else f"its FrayJob is gone{predicted}"
    alike = [end for end in ends if _is_alike(end, status)]
    if not alike:
        told = [attempt.get("verdict", "none") for attempt in status.get("attempts", [])]
        charged = " and ".join(f"{_used(status, each)} {each.lower()}s" for each in CHARGES)
        return f"{_tell(status.get('phase', 'no phase'), told)}, charged {charged}{predicted}"
    wrong = [_find_wrong(end, status) for end in alike]
    return None if None in wrong else wrong[0]


def _is_alike(end: End, status: Manifest) -> bool:
    told = tuple(attempt.get("verdict") for attempt in status.get("attempts", []))
    return (
        end.phase == status.get("phase")
        and end.verdicts[-KEPT_ATTEMPTS:] == told
        and all(end.count(verdict) == _used(status, verdict) for verdict in CHARGES)
    )


def _find_wrong(end: End, status: Manifest) -> str | None:
    attempts = end.attempts[-KEPT_ATTEMPTS:]
    for told, ended in zip(status.get("attempts", []), attempts, strict=True):
        if not ended.allows(told):
            how = _tell_attempt(told["verdict"], told.get("reason"), told.get("exitCode"), told.get("rank"))
            return f"attempt {told['number']} ended as {how}; predicted: {ended}"
    if not is_finished(status):
        return f"it is {end.phase}, and not finished"
    plain = {Phase.SUCCEEDED: SUCCEEDED.reasons, Phase.STOPPED: STOPPED.reasons}
    reasons = plain.get(Phase(end.phase)) or attempts[-1].reasons
    if status.get("reason") not in set[str | None](reasons):
        return f"it is {end.phase} for {status.get('reason')}; predicted: {' or '.join(sorted(reasons))}"
    return None


def find_regressions(before: Manifest, after: Manifest) -> Iterator[str]:
    """Say where a job's status takes back what an earlier one told, or doesn't fit together."""
    if is_finished(before) and before != after:
        yield f"its status changes after its end: it was {before}, is {after}"
    numbers = [attempt["number"] for attempt in after.get("attempts", [])]
    first = numbers[0] if len(numbers) == KEPT_ATTEMPTS else 1
    if numbers != list(range(first, first + len(numbers))):
        yield f"it has the attempts {numbers}"
    was, now = ({each["number"]: each for each in status.get("attempts", [])} for status in (before, after))
    if max(was, default=0) > max(now, default=0):
        yield f"attempt went from {max(was)} to {max(now, default=0)}"
    for number in was.keys() & now.keys():
        ended, changed = "verdict" in was[number], was[number] != now[number]
        if ended and changed:
            yield f"attempt {number} has ended, and changes: it was {was[number]}, is {now[number]}"
        for key in () if ended else ("startTime", "runningTime", "jobSet"):
            if key in was[number] and was[number][key] != now[number].get(key):
                yield f"{key} of attempt {number} was {was[number][key]}, is {now[number].get(key)}"
    for verdict, key in CHARGES.items():
        used = _used(after, verdict)
        if used < _used(before, verdict):
            yield f"{key} went from {_used(before, verdict)} to {used}"
        if first == 1 and used != sum(each.get("verdict") == verdict for each in now.values()):
            yield f"{key} is {used}, and its attempts are {[each.get('verdict') for each in now.values()]}"


def is_finished(status: Manifest) -> bool:
    """Return whether a status says that its job has ended."""
    return any(
        condition["type"] == ConditionType.FINISHED and condition["status"] == "True"
        for condition in status.get("conditions", [])
    )


def _used(status: Manifest, verdict: VerdictKind) -> int:
    used: int = status.get("retries", {}).get(CHARGES[verdict]) or 0
    return used


def _tell(phase: str, verdicts: Sequence[str]) -> str:
    return f"{phase} after {', '.join(verdicts) or 'no attempt'}"


def _tell_attempt(verdict: str, reason: object, code: object, rank: object) -> str:
    return f"{verdict} for {reason} with exit code {code}, of rank {rank}"
