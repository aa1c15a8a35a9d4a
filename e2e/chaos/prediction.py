"""In which ways each attempt of a job may have gone, from what it is and what was done to it.

Pure. An attempt ends by the first thing that ends it, and clocks, networks and kubelets decide which of two
that came at about the same time was first. So the prediction is a set: of one end nearly always, since most
harm is done long before an attempt would have ended by itself. The exit code of a failure is known unless
its pods showed it and were gone while no operator led. What follows from the ways is `oracle`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from e2e.chaos import oracle
from e2e.chaos.oracle import Budgets, End, Ended, Way
from e2e.chaos.plan import PREEMPTIONS, Act, JobPlan
from e2e.chaos.records import NODE_DELETED, POD_DELETED, Hit, Outage, PodSighting, Records
from fray.vocabulary import Phase, Role

__all__ = ["predict"]

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


class _Ender(NamedTuple):
    """Something that may have ended an attempt; `sure` when it came long before the attempt's own end."""

    ended: Ended
    sure: bool


def predict(job: JobPlan, records: Records) -> frozenset[End]:
    """Return all ends that the job may have come to; empty when it can't have ended.

    For a job that is deleted in the end, by its user or by its time to live, these are the ends it may have
    had before.
    """
    return oracle.predict(Budgets(job.failures, PREEMPTIONS), _World(job, records).ways)


def _find_unseen(job: JobPlan, records: Records) -> frozenset[int]:
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
        self._unseen = _find_unseen(job, records)

    def ways(self, attempt: int) -> set[Way]:
        """Return in which ways the attempt may have gone."""
        enders = list(self._enders(attempt))
        found = {Way(ender.ended) for ender in enders}
        own = self._job.exit_of(attempt)
        if own is not None and not any(ender.sure for ender in enders):
            ended = oracle.exited(own)
            hidden = own != 0 and attempt in self._unseen
            found.add(Way(replace(ended, codes=ended.codes | {None}) if hidden else ended))
        if self._may_stop_before(attempt):
            found.add(Way(None, Phase.STOPPED))
        return found

    def _may_stop_before(self, attempt: int) -> bool:
        """Return whether the job may have been stopped when the attempt before had ended."""
        stops = [act.attempt for act in self._acts if act.act is Act.STOP]
        return any(attempt - 1 in (number, number + 1) for number in stops)

    def _enders(self, attempt: int) -> Iterator[_Ender]:
        for hit in self._hits:
            if hit.attempt == attempt:
                yield _Ender(oracle.TAKEN_AWAY, self._is_sure(hit))
        for act in self._acts:
            # The attempt that was seen last, or the next, which nobody had seen yet.
            if attempt in (act.attempt, act.attempt + 1):
                if act.act is Act.STOP:
                    yield _Ender(oracle.STOPPED, sure=False)
                elif act.act is Act.SUSPEND:
                    # Never sure: the operator may have been away until the attempt had ended by itself.
                    yield _Ender(oracle.SUSPENDED, sure=False)
        for pod in self._pods.get(attempt, []):
            for outage in self._outages:
                long = outage.end - outage.begin > OUTAGE_SECONDS
                told = pod.reason or pod.exit_code == NOT_STARTED or long
                # A node that is made again begins as one that isn't ready, and a failed host's is looked at.
                anew = outage.how == NODE_DELETED and self._job.exit_of(attempt)
                if (told and _meets(outage, pod)) or (anew and _meets(outage, pod, JUDGED_SECONDS)):
                    yield _Ender(oracle.TAKEN_AWAY, sure=False)

    def _own_end(self, attempt: int, *, without: str | None = None) -> float:
        """Return when the attempt's first host would have ended by itself, `without` a pod of this uid."""
        if self._job.seconds is None:
            return math.inf
        pods = [pod for pod in self._pods.get(attempt, []) if pod.uid != without]
        starts = [pod.started for pod in pods if pod.started is not None]
        return min(starts, default=math.inf) + self._job.seconds

    def _is_sure(self, hit: Hit) -> bool:
        own_end = self._own_end(hit.attempt)
        if hit.at + MARGIN_SECONDS > own_end:
            return False
        pod = next((pod for pod in self._pods.get(hit.attempt, []) if pod.uid == hit.uid), None)
        if pod is not None and pod.finished is not None and pod.exit_code == self._job.exit_of(hit.attempt):
            return False  # it reached its own end
        if pod is not None and hit.how == POD_DELETED and self._outlived_a_peer(pod):
            return False
        # Without a kubelet nobody ends the pod's program, which may then come to its own end.
        return not any(
            outage.host == hit.node and outage.begin < own_end and outage.end > hit.at - MARGIN_SECONDS
            for outage in self._outages
        )

    def _outlived_a_peer(self, deleted: PodSighting) -> bool:
        """Return whether a pod that was deleted may still have been there when a peer ended by itself.

        Busy nodes take their time. Who fails by itself in it is the cause: unlike an eviction a deletion
        leaves no mark, and the peers of a host that failed are deleted too.
        """
        return _find_end(deleted) + MARGIN_SECONDS > self._own_end(deleted.attempt, without=deleted.uid)


def _find_end(pod: PodSighting) -> float:
    """Return when a pod that was taken away had ended; infinite for one that wasn't seen to."""
    gone = pod.at if pod.gone else math.inf
    return gone if pod.finished is None else pod.finished


def _meets(outage: Outage, pod: PodSighting, seconds: float = MARGIN_SECONDS) -> bool:
    """Return whether a pod was on a host while that had no kubelet, or ended at most so long before."""
    if outage.host != pod.node:
        return False
    begun = pod.started if pod.started is not None else -math.inf
    ended = pod.finished if pod.finished is not None else math.inf
    return begun < outage.end + MARGIN_SECONDS and ended > outage.begin - seconds
