"""What somebody deletes, suspends or misplaces, and pods that were gone before anybody looked."""

from __future__ import annotations

from typing import Any

from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import exited, job, jobset, mark, pod, running
from tests.unit.plan.verdict_situations.situation import (
    E2E,
    JOBSET,
    KUBERNETES,
    PAIR,
    SLICES,
    Scene,
    Situation,
)

__all__ = ["SITUATIONS"]

POLICY = KUBERNETES + "pkg/controller/job/pod_failure_policy.go"
DELETION = KUBERNETES + "pkg/kubelet/status/status_manager.go"
LIMIT = "Job has reached the specified backoff limit"
VIOLATION = mark("ExclusivePlacementViolation", "Pod violated JobSet exclusive placement policy", after=0)


def matched(slice_index: int, host: int) -> str:
    pod_name = f"ml/train-a1-slice-{slice_index}-{host}-x7x2p"
    return f"Pod {pod_name} has condition DisruptionTarget matching FailJob rule at index 0"


def killed(code: int) -> str:
    who = "Container main for pod ml/train-a1-slice-0-0-x7x2p"
    return f"{who} failed with exit code {code} matching FailJob rule at index 1"


def gone(name: str, source: str, *scenes: Scene, says: tuple[str, ...], **more: Any) -> Situation:
    return Situation(name, source, scenes, Reason.HOSTS_GONE, VerdictKind.PREEMPTION, says, **more)


DELETED = (
    gone(
        "kubectl delete pod",
        DELETION,
        Scene(1, (pod(0, "Failed", exited(143, after=0), deleted=-1),)),
        says=("was killed by SIGTERM (exit code 143): its pod was deleted from outside",),
        code=143,
    ),
    gone(
        "kubectl delete pod, and the program ignores SIGTERM",
        DELETION,
        Scene(1, (pod(0, "Failed", exited(137, after=0), deleted=-30),)),
        says=("was killed by SIGKILL (exit code 137): its pod was deleted from outside",),
        code=137,
    ),
    gone(
        "kubectl delete pod, and the program catches SIGTERM",
        DELETION,
        Scene(1, (pod(0, "Failed", exited(1, after=0), deleted=-2),)),
        says=("exited with code 1: its pod was deleted from outside",),
        code=1,
    ),
    gone(
        "kubectl delete pod before it ran",
        DELETION,
        Scene(1, (pod(0, "Failed", None, deleted=0),)),
        says=("never ran: its pod was deleted from outside",),
        ran=False,
    ),
    gone(
        "kubectl delete pod before it had a node: its Job fails, and its JobSet",
        JOBSET + "pkg/controllers/failure_policy.go",
        Scene(1, (pod(0, "Pending", None, placed=False, deleted=0, grace=0),)),
        says=("never ran: its pod was deleted from outside",),
        ran=False,
    ),
    Situation(
        "a JobSet fails, and then deletes its pods, which never ran",
        JOBSET + "pkg/controllers/jobset_controller.go",
        (Scene(1, (pod(0, "Pending", None, placed=False, deleted=1, grace=0),)),),
        Reason.NON_ZERO_EXIT,
        VerdictKind.FAILURE,
        ("failed: its JobSet failed before it ran",),
        ran=False,
    ),
    Situation(
        "a pod is deleted long after its program had failed",
        DELETION,
        (Scene(90, (pod(0, "Failed", exited(1), deleted=80),)),),
        Reason.NON_ZERO_EXIT,
        VerdictKind.FAILURE,
        ("exited with code 1",),
        code=1,
        within=95,
    ),
    gone(
        "kubectl delete job: JobSet makes another, under the same attempt",
        E2E + "test_taken_away.py; " + JOBSET + "pkg/controllers/jobset_controller.go",
        Scene(1, (pod(0, "Pending", {"waiting": {"reason": "ContainerCreating"}}, made=0),), jobset=jobset()),
        Scene(3, (), jobset=None),
        says=("the pod of rank 0 was made anew: it or its Job was deleted from outside",),
    ),
    gone(
        "kubectl delete jobset",
        JOBSET + "pkg/controllers/jobset_controller.go",
        Scene(1, (), jobset=None),
        says=("its hosts are gone: they were deleted from outside",),
        first=None,
    ),
)

UNSEEN = (
    Situation(
        "no operator looked when a pod was evicted: its Job tells",
        POLICY,
        (Scene(600, (), jobs=(job(0, "PodFailurePolicy", matched(0, 0)),)),),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 0 (slice 0, host 0) was taken away (Pod ml/train-a1-slice-0-0-x7x2p has condition",),
        within=601,
    ),
    Situation(
        "no operator looked when a pod of the second slice was evicted, and its peer is still there",
        POLICY,
        (
            Scene(
                600,
                (pod(0, "Failed", exited(1), hosts=2),),
                jobs=(
                    job(0, "BackoffLimitExceeded", LIMIT),
                    job(1, "PodFailurePolicy", matched(1, 1)),
                ),
            ),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 3 (slice 1, host 1) was taken away",),
        first=3,
        shape=SLICES,
        within=601,
    ),
    gone(
        "no operator looked when a pod was deleted: its Job tells the exit code",
        POLICY,
        Scene(600, (), jobs=(job(0, "PodFailurePolicy", killed(143)),)),
        says=("was killed by SIGTERM (exit code 143): its pod was deleted from outside",),
        code=143,
        within=601,
    ),
    Situation(
        "no operator looked when a pod failed, and was removed since",
        POLICY,
        (Scene(600, (), jobs=(job(0, "BackoffLimitExceeded", LIMIT),)),),
        Reason.NON_ZERO_EXIT,
        VerdictKind.FAILURE,
        ("its pod is gone, and nothing tells how it ended",),
        pod=False,
        within=601,
    ),
    Situation(
        "no operator looked when the attempt succeeded, and its pods were removed since",
        KUBERNETES + "pkg/controller/podgc/gc_controller.go",
        (Scene(600, (), jobset=jobset("Completed")),),
        Reason.COMPLETED,
        VerdictKind.SUCCESS,
        ("the host exited with code 0",),
        first=None,
        within=601,
    ),
)

OTHERS = (
    Situation(
        "Kueue takes the quota back: it suspends the JobSet, and the hosts are ended",
        JOBSET + "pkg/controllers/jobset_controller.go",
        (
            Scene(1, (pod(0, "Running", running(), deleted=0),), jobset=jobset(suspended=True)),
            Scene(3, (pod(0, "Failed", exited(143, after=2), deleted=0),), jobset=jobset(suspended=True)),
            Scene(5, (), jobset=None),
        ),
        Reason.SUSPENDED,
        VerdictKind.SUSPENDED,
        ("its JobSet was suspended, and not by this job's spec.suspend",),
        first=None,
    ),
    Situation(
        "the job's own author suspends it",
        E2E + "test_endings.py",
        (
            Scene(1, (pod(0, "Running", running()),), jobset=jobset()),
            Scene(5, (), jobset=None),
        ),
        Reason.SUSPENDED,
        VerdictKind.SUSPENDED,
        ("spec.suspend is true",),
        first=None,
        shape={"suspend": True},
    ),
    Situation(
        "the job's own author stops it",
        E2E + "test_endings.py",
        (
            Scene(1, (pod(0, "Running", running()),), jobset=jobset()),
            Scene(5, (), jobset=None),
        ),
        Reason.STOP_REQUESTED,
        VerdictKind.STOPPED,
        ("spec.stopped is true",),
        first=None,
        shape={"stopped": True},
    ),
    Situation(
        "JobSet removes a host that stands in another slice's node pool",
        JOBSET + "pkg/controllers/pod_controller.go",
        (
            Scene(1, (pod(3, "Pending", None, VIOLATION, hosts=2, made=-2),), jobset=jobset()),
            Scene(5, (), jobset=None),
        ),
        Reason.EXCLUSIVE_PLACEMENT_VIOLATION,
        VerdictKind.MISPLACEMENT,
        ("rank 3 (slice 1, host 1) was placed on node node-3 outside its slice's node pool",),
        first=3,
        shape=SLICES,
        ran=False,
    ),
    Situation(
        "the same, and its peers crash before",
        JOBSET + "pkg/controllers/pod_controller.go",
        (
            Scene(
                1,
                (
                    pod(0, "Failed", exited(1, since=-1), hosts=2, made=-2),
                    pod(3, "Failed", None, VIOLATION, hosts=2, made=-2),
                ),
            ),
        ),
        Reason.EXCLUSIVE_PLACEMENT_VIOLATION,
        VerdictKind.MISPLACEMENT,
        ("outside its slice's node pool",),
        first=3,
        shape=SLICES,
        ran=False,
    ),
    Situation(
        "a host is misplaced, and another is drained",
        JOBSET + "pkg/controllers/pod_controller.go",
        (
            Scene(
                1,
                (
                    pod(0, "Failed", exited(143, since=-1), mark("EvictionByEvictionAPI"), made=-2),
                    pod(1, "Failed", None, VIOLATION, made=-2),
                ),
            ),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 0 (slice 0, host 0) was taken away",),
        code=143,
        shape=PAIR,
        ran=False,
    ),
)

SITUATIONS = (*DELETED, *UNSEEN, *OTHERS)
