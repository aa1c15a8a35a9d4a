"""Pods that fail or are marked, and are gone before the next look: what they showed last counts."""

from __future__ import annotations

from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import (
    at,
    evicted_mark,
    exited,
    jobset,
    mark,
    pod,
    running,
)
from tests.unit.plan.verdict_situations.situation import (
    E2E,
    JOBSET,
    KUBERNETES,
    PAIR,
    Manifest,
    Scene,
    Situation,
    failure,
    preemption,
)

__all__ = ["SITUATIONS"]

EVICTION = KUBERNETES + "pkg/registry/core/pod/storage/eviction.go"
GC = KUBERNETES + "pkg/controller/podgc/gc_controller.go"
STALE = KUBERNETES + "pkg/controller/disruption/disruption.go"
KUEUE = (
    "made from https://github.com/kubernetes-sigs/kueue/blob/main/pkg/controller/jobs/pod/pod_controller.go"
)
MARKED = (pod(0, "Running", running(), evicted_mark(), deleted=0),)
WITHDRAWN = mark("EvictionByEvictionAPI", after=120, status="False")


def resumed() -> Manifest:
    """Return a JobSet that somebody suspended and resumed a while ago."""
    lifted = {"type": "Suspended", "status": "False", "reason": "ResumeJobs", "lastTransitionTime": at(60)}
    return jobset() | {"status": {"conditions": [lifted]}}


KEPT = (
    preemption(
        "a pod is marked, ends and is removed between two looks",
        EVICTION,
        Scene(1, (), gone=(pod(0, "Failed", exited(143), evicted_mark(), deleted=0),)),
        says=("rank 0 (slice 0, host 0) was taken away (EvictionByEvictionAPI: Eviction API: evicting)",),
        code=143,
    ),
    preemption(
        "a pod is marked and removed by force between two looks: nobody saw it end",
        EVICTION,
        Scene(1, (), gone=MARKED),
        says=("was taken away (EvictionByEvictionAPI",),
    ),
    preemption(
        "the same while the JobSet doesn't know of it yet",
        EVICTION,
        Scene(1, (), jobset=jobset(), gone=MARKED),
        Scene(2, (), gone=MARKED),
        says=("was taken away (EvictionByEvictionAPI",),
    ),
    preemption(
        "Kueue takes back the quota of a pod that it manages by itself",
        KUEUE,
        Scene(
            1,
            (),
            gone=(
                pod(
                    0,
                    "Failed",
                    exited(143),
                    mark("WorkloadEvictedDueToPreempted", "Preempted to accommodate a workload")
                    | {"type": "TerminationTarget"},
                    deleted=0,
                ),
            ),
        ),
        says=("was taken away (WorkloadEvictedDueToPreempted: Preempted to accommodate a workload)",),
        code=143,
    ),
    failure(
        "a pod fails and is removed within a second",
        E2E + "chaos",
        Scene(1, (), gone=(pod(0, "Failed", exited(9, message="Traceback\nValueError: 9")),)),
        says=("rank 0 (slice 0, host 0) exited with code 9", "ValueError: 9"),
        code=9,
    ),
    failure(
        "a pod fails and is removed within a second, and its peers with it",
        E2E + "chaos",
        Scene(
            1,
            (),
            gone=(
                pod(0, "Failed", exited(143, after=1), deleted=0),
                pod(1, "Failed", exited(9)),
            ),
        ),
        says=("rank 1 (slice 0, host 1) exited with code 9",),
        first=1,
        code=9,
        shape=PAIR,
    ),
    Situation(
        "all pods end well, and pod GC removes them before the JobSet says so",
        GC,
        (
            Scene(1, (), jobset=jobset(), gone=(pod(0, "Succeeded", exited(0)),)),
            Scene(2, (), jobset=jobset("Completed")),
        ),
        Reason.COMPLETED,
        VerdictKind.SUCCESS,
        ("the host exited with code 0",),
        first=None,
    ),
    Situation(
        "what ended with a suspension that is over tells nothing of what came after",
        JOBSET + "pkg/controllers/jobset_controller.go",
        (
            Scene(
                70,
                (pod(0, "Pending", None, made=61, placed=False),),
                jobset=resumed(),
                gone=(pod(1, "Failed", exited(143, after=40), deleted=10),),
            ),
            Scene(72, (), jobset=None),
        ),
        Reason.SUSPENDED,
        VerdictKind.SUSPENDED,
        ("its JobSet was suspended and resumed, and not by this job's spec.suspend",),
        first=None,
        shape=PAIR,
        within=75,
    ),
)

NOTED = (
    preemption(
        "a mark is seen, and an operator that starts anew finds nothing any more",
        EVICTION,
        Scene(1, MARKED, jobset=jobset()),
        Scene(40, ()),
        says=("was taken away (EvictionByEvictionAPI: Eviction API: evicting)",),
        within=41,
        pod=False,
    ),
    preemption(
        "a mark is seen, then its pod is gone and only the peer that crashed is left",
        EVICTION,
        Scene(1, (*MARKED, pod(1, "Running", running())), jobset=jobset()),
        Scene(5, (pod(1, "Failed", exited(1, after=2)),)),
        says=("rank 1 (slice 0, host 1) exited with code 1; rank 0", "EvictionByEvictionAPI"),
        first=1,
        code=1,
        shape=PAIR,
    ),
    failure(
        "an eviction is given up, and the program fails an hour later",
        STALE,
        Scene(1, (pod(0, "Running", running(), evicted_mark()),), jobset=jobset()),
        Scene(121, (pod(0, "Running", running(), WITHDRAWN),), jobset=jobset()),
        Scene(3601, (pod(0, "Failed", exited(1, after=3600), WITHDRAWN),)),
        says=("exited with code 1",),
        code=1,
        within=3610,
    ),
)

SITUATIONS = (*KEPT, *NOTED)
