"""How a job must have ended, from what it is and what was done to it: a model of its own, not the operator's.

Pure. An attempt ends by the first thing that ends it, and clocks, networks and kubelets decide which of two
that came at about the same time was first. So the prediction is a set: of one end nearly always, since most
harm is done long before an attempt would have ended by itself. The exit code of a failure is known unless
its pods showed it and were gone while no operator led.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from e2e.chaos.plan import Act, JobPlan, Kind
from e2e.chaos.records import NODE_DELETED, Hit, Outage, PodSighting, Records
from fray.vocabulary import Phase, Reason, Role, VerdictKind

__all__ = ["GONE", "End", "find_mismatch", "find_unseen", "predict"]

GONE = "Gone"
"""In place of a phase: the FrayJob is no more."""
MARGIN_SECONDS = 3.0
"""What is done earlier than this before an attempt's own end surely came first."""
OUTAGE_SECONDS = 30.0
"""How long a node may be away before anybody takes its pods away: pods of a Node that doesn't exist are
collected after 40 s, https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/controller/podgc/gc_controller.go
"""
NOT_STARTED = 128
"""Exit code of a container that its node's runtime could not start: a kubelet was killed while it did. See
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/kuberuntime/kuberuntime_container.go
"""
JUDGED_SECONDS = 10.0
"""How long after a host's own failure the operator may still look whether its node is there and ready."""
MOST_ATTEMPTS = 60
KEPT_ATTEMPTS = 10


@dataclass(frozen=True)
class End:
    """How a job ended: its phase, and what each attempt was charged to."""

    phase: str
    verdicts: tuple[str, ...]

    def count(self, verdict: VerdictKind) -> int:
        """How many attempts were charged to it."""
        return self.verdicts.count(verdict.value)

    def __str__(self) -> str:
        return f"{self.phase} after {', '.join(self.verdicts) or 'no attempt'}"


class _Ender(NamedTuple):
    """Something that may have ended an attempt; `sure` when it came long before the attempt's own end."""

    verdict: VerdictKind
    sure: bool


def predict(job: JobPlan, records: Records) -> frozenset[End]:
    """Return all ends that the job may have come to; empty when it can't have ended.

    For a job that is deleted in the end, by its user or by its time to live, these are the ends it may have
    had before: whether it is gone is `find_mismatch`'s to say.
    """
    world = _World(job, records)
    ends: set[End] = set()
    open_ends: list[tuple[str, ...]] = [()]
    while open_ends:
        verdicts = open_ends.pop()
        phase = _derive_phase(job, verdicts)
        if phase is not None:
            ends.add(End(phase.value, verdicts))
            continue
        if world.may_stop_after(len(verdicts)):
            ends.add(End(Phase.STOPPED.value, verdicts))
        if len(verdicts) < MOST_ATTEMPTS:
            following = world.verdicts_of(len(verdicts) + 1)
            open_ends += [(*verdicts, verdict.value) for verdict in following]
    return frozenset(ends)


def find_unseen(job: JobPlan, records: Records) -> frozenset[int]:
    """Return the attempts whose pods with the job's exit code ended, and were gone, while nobody led."""
    gaps = [
        # A leader reads what there is once it has the Lease.
        (before.at, after.at + MARGIN_SECONDS)
        for before, after in pairwise(records.leases)
        if before.holder != after.holder
    ]
    shown: dict[int, dict[str, list[PodSighting]]] = {}
    for pod in records.pods:
        if pod.job == job.name and pod.exit_code == job.exit_code:
            shown.setdefault(pod.attempt, {}).setdefault(pod.uid, []).append(pod)
    return frozenset(
        attempt
        for attempt, pods in shown.items()
        if all(
            seen[-1].gone and any(begin <= seen[0].at and seen[-1].at <= end for begin, end in gaps)
            for seen in pods.values()
        )
    )


def _derive_phase(job: JobPlan, verdicts: tuple[str, ...]) -> Phase | None:
    """Return how the job ends by the last verdict, None when it goes on."""
    if not verdicts:
        return None
    match VerdictKind(verdicts[-1]):
        case VerdictKind.SUCCESS:
            return Phase.SUCCEEDED
        case VerdictKind.STOPPED:
            return Phase.STOPPED
        case VerdictKind.FAILURE if verdicts.count(VerdictKind.FAILURE.value) > job.failures:
            return Phase.FAILED
        case _:
            return None


class _World:
    """What may have ended each attempt of one job."""

    def __init__(self, job: JobPlan, records: Records) -> None:
        self._job = job
        self._pods: dict[int, list[PodSighting]] = {}
        workers = set[str]()
        for pod in records.last_pods(job.name):
            if pod.role == Role.WORKER:
                workers.add(pod.uid)  # whatever becomes of it, the attempt goes on
            else:
                self._pods.setdefault(pod.attempt, []).append(pod)
        self._hits = [hit for hit in records.hits if hit.job == job.name and hit.uid not in workers]
        self._acts = [act for act in records.acts if act.job == job.name]
        self._outages = records.outages

    def verdicts_of(self, attempt: int) -> set[VerdictKind]:
        """Return what the attempt may have been charged to."""
        enders = list(self._enders(attempt))
        found = {ender.verdict for ender in enders}
        own = self._job.exit_of(attempt)
        if own is not None and not any(ender.sure for ender in enders):
            found.add(VerdictKind.SUCCESS if own == 0 else VerdictKind.FAILURE)
        return found

    def may_stop_after(self, attempts: int) -> bool:
        """Return whether the job may have been stopped when so many attempts had ended and none followed."""
        stops = [act.attempt for act in self._acts if act.act is Act.STOP]
        return any(attempts in (number, number + 1) for number in stops)

    def _enders(self, attempt: int) -> Iterator[_Ender]:
        for hit in self._hits:
            if hit.attempt == attempt:
                yield _Ender(VerdictKind.PREEMPTION, self._is_sure(hit))
        for act in self._acts:
            # The attempt that was seen last, or the next, which nobody had seen yet.
            if attempt in (act.attempt, act.attempt + 1):
                if act.act is Act.STOP:
                    yield _Ender(VerdictKind.STOPPED, sure=False)
                elif act.act is Act.SUSPEND:
                    # Never sure: the operator may have been away until the attempt had ended by itself.
                    yield _Ender(VerdictKind.SUSPENDED, sure=False)
        for pod in self._pods.get(attempt, []):
            for outage in self._outages:
                long = outage.end - outage.begin > OUTAGE_SECONDS
                told = pod.reason or pod.exit_code == NOT_STARTED or long
                # A node that is made again begins as one that isn't ready, and a failed host's is looked at.
                anew = outage.how == NODE_DELETED and self._job.exit_of(attempt)
                if (told and _meets(outage, pod)) or (anew and _meets(outage, pod, JUDGED_SECONDS)):
                    yield _Ender(VerdictKind.PREEMPTION, sure=False)

    def _own_end(self, attempt: int) -> float:
        """Return when the attempt's first host would have ended by itself."""
        if self._job.seconds is None:
            return math.inf
        starts = [pod.started for pod in self._pods.get(attempt, []) if pod.started is not None]
        return min(starts, default=math.inf) + self._job.seconds

    def _is_sure(self, hit: Hit) -> bool:
        own_end = self._own_end(hit.attempt)
        if hit.at + MARGIN_SECONDS > own_end:
            return False
        pod = next((pod for pod in self._pods.get(hit.attempt, []) if pod.uid == hit.uid), None)
        if pod is not None and pod.finished is not None and pod.exit_code == self._job.exit_of(hit.attempt):
            return False  # it reached its own end
        # Without a kubelet nobody ends the pod's program, which may then come to its own end.
        return not any(
            outage.host == hit.node and outage.begin < own_end and outage.end > hit.at - MARGIN_SECONDS
            for outage in self._outages
        )


def _meets(outage: Outage, pod: PodSighting, seconds: float = MARGIN_SECONDS) -> bool:
    """Return whether a pod was on a host while that had no kubelet, or ended at most so long before."""
    if outage.host != pod.node:
        return False
    begun = pod.started if pod.started is not None else -math.inf
    ended = pod.finished if pod.finished is not None else math.inf
    return begun < outage.end + MARGIN_SECONDS and ended > outage.begin - seconds


def find_mismatch(
    job: JobPlan, ends: frozenset[End], *, unseen: frozenset[int], status: Mapping[str, Any], gone: bool
) -> str | None:
    """Return in words how a job differs from what was predicted, None when it doesn't.

    `unseen` are attempts whose exit code may be unknown, `status` is the last that was seen, `gone`
    whether the FrayJob is no more.
    """
    leaves = job.kind in (Kind.DELETED, Kind.EXPIRES)
    if gone is not leaves:
        return "its FrayJob is gone" if gone else "its FrayJob is still there"
    if job.kind is Kind.DELETED:
        return None
    attempts = status.get("attempts", [])
    told = tuple(attempt.get("verdict", "none") for attempt in attempts)
    retries = status.get("retries", {})
    for end in ends:
        if (
            end.phase == status.get("phase")
            and end.verdicts[-KEPT_ATTEMPTS:] == told
            and end.count(VerdictKind.FAILURE) == retries.get("failuresUsed", 0)
            and end.count(VerdictKind.PREEMPTION) == retries.get("preemptionsUsed", 0)
        ):
            return _find_wrong_reason(job, attempts, unseen)
    charged = f"{retries.get('failuresUsed', 0)} failures and {retries.get('preemptionsUsed', 0)} preemptions"
    predicted = " or ".join(sorted(map(str, ends))) or "no end"
    return f"{End(status.get('phase', 'no phase'), told)}, charged {charged}; predicted: {predicted}"


def _find_wrong_reason(job: JobPlan, attempts: list[Mapping[str, Any]], unseen: frozenset[int]) -> str | None:
    for attempt in attempts:
        wanted: tuple[str, int | None] | None = {
            VerdictKind.SUCCESS.value: (Reason.COMPLETED.value, None),
            VerdictKind.FAILURE.value: (Reason.NON_ZERO_EXIT.value, job.exit_code),
            VerdictKind.SUSPENDED.value: (Reason.SUSPENDED.value, None),
            VerdictKind.STOPPED.value: (Reason.STOP_REQUESTED.value, None),
        }.get(attempt["verdict"])
        found = (attempt.get("reason"), attempt.get("exitCode"))
        if attempt["number"] in unseen and found == (Reason.NON_ZERO_EXIT.value, None):
            continue
        if wanted is not None and found != wanted:
            return f"attempt {attempt['number']} ended as {found}; predicted: {wanted}"
        if wanted is None and attempt.get("reason") not in (Reason.DISRUPTED, Reason.HOSTS_GONE):
            return f"attempt {attempt['number']} is a preemption for {attempt.get('reason')}"
    return None
