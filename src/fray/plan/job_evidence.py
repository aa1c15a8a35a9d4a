"""What the child Jobs of an attempt still tell once its pods are gone: that a host was taken away.

A pod that is evicted or deleted may be gone, with its node, before anybody has looked at it. Its Job keeps
the evidence: the rule of its podFailurePolicy that the pod matched. Pods that are there know better than
their Job. Fetching Jobs is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fray.plan.manifests import Manifest, find_condition
from fray.plan.observation import (
    KILL_CODES,
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.timestamps import parse_time
from fray.plan.verdict import is_uncertain
from fray.vocabulary import LABEL_JOB_INDEX
from fray.wire.status import AttemptStatus

__all__ = ["is_unexplained", "with_job_evidence"]

POLICY_REASON = "PodFailurePolicy"
"""Reason of a Job's condition Failed when a rule of its podFailurePolicy ended it:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
"""
TAKEN = re.compile(
    r"\b[Pp]od (\S+/(?P<pod>\S+) )?(has condition DisruptionTarget|failed with exit code (?P<code>\d+))\b"
)
"""In the message of that condition:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/controller/job/pod_failure_policy.go
"""
HOST = re.compile(r"-(\d+)-[a-z0-9]+$")
"""The end of a pod's name: its completion index, and chance."""


@dataclass(frozen=True)
class _Testimony:
    """What a Job says of a pod that was taken away; `host` is None where its name doesn't tell.

    `exit_code` is that of a pod that was killed and had no sign of a disruption.
    """

    slice_index: int
    host: int | None
    pod: str | None
    exit_code: int | None
    at: str | None
    message: str

    def apply(self, host: HostObservation) -> HostObservation:
        """Return the host with what is known of it."""
        ended_at = parse_time(self.at) if self.at else None
        host = replace(host, name=self.pod, ended_at=ended_at)
        if self.exit_code is None:
            evidence = Evidence(EvidenceKind.TAKEN, self.message, ended_at)
            return replace(host, evidence=evidence)
        # A pod that failed stays, unless it is deleted: one that was killed and isn't there was deleted.
        return replace(host, exit_code=self.exit_code, phase=HostPhase.DELETED)


def is_unexplained(attempt: AttemptStatus, observed: GangObservation) -> bool:
    """Return whether hosts whose pods are gone may be the cause of an end that is judged now.

    It is judged when it is first seen, and again when all hosts have ended.
    """
    judged = observed.ended or attempt.reason is None
    return (
        judged
        and any(host.phase is HostPhase.GONE for host in observed.hosts)
        and is_uncertain(attempt, observed)
    )


def with_job_evidence(observed: GangObservation, jobs: Iterable[Manifest]) -> GangObservation:
    """Return the gang with what took away hosts that are gone, as far as their Jobs tell of it."""
    hosts = list(observed.hosts)
    for testimony in _testimonies(jobs):
        place = _find_gone(hosts, testimony)
        if place is not None:
            hosts[place] = testimony.apply(hosts[place])
    return replace(observed, hosts=tuple(hosts))


def _testimonies(jobs: Iterable[Manifest]) -> Iterator[_Testimony]:
    for job in jobs:
        slice_index = job["metadata"].get("labels", {}).get(LABEL_JOB_INDEX, "0")
        condition = find_condition(job, "Failed", status="True")
        if condition.get("reason") == POLICY_REASON and slice_index.isdecimal():
            testimony = _read(int(slice_index), condition)
            # What a Job that is being deleted says of an exit code is how its deletion ended its pods.
            leaving = "deletionTimestamp" in job["metadata"]
            if testimony is not None and not (leaving and testimony.exit_code is not None):
                yield testimony


def _read(slice_index: int, condition: Manifest) -> _Testimony | None:
    """Return what the condition of a Job tells, None where it isn't that a host was taken away."""
    message = str(condition.get("message", ""))
    matched = TAKEN.search(message)
    code = None if matched is None or matched["code"] is None else int(matched["code"])
    if matched is None or code not in (None, *KILL_CODES):
        return None
    host = HOST.search(matched["pod"] or "")
    at = condition.get("lastTransitionTime")
    return _Testimony(slice_index, int(host[1]) if host else None, matched["pod"], code, at, message)


def _find_gone(hosts: list[HostObservation], testimony: _Testimony) -> int | None:
    """Return where the host of a pod that was taken away stands, None where its pod can speak for itself."""
    gone = [
        place
        for place, host in enumerate(hosts)
        if host.phase is HostPhase.GONE and host.slice_index == testimony.slice_index
    ]
    if testimony.host is None:
        return gone[0] if gone else None
    return next((i for i in gone if hosts[i].host == testimony.host), None)
