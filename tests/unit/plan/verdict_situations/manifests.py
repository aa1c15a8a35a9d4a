"""Builders of pods, JobSets, Jobs and nodes as the API server returns them, for the table of situations.

Fields, words and conditions are those of Kubernetes 1.34, JobSet 0.12 and GKE. Moments are seconds after the
first failure of the situation.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fray.vocabulary import (
    CONTAINER,
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOBSET_NAME,
    LABEL_JOBSET_UID,
)

__all__ = [
    "STARTED",
    "T0",
    "at",
    "evicted_mark",
    "exited",
    "job",
    "jobset",
    "mark",
    "node",
    "pod",
    "ready_nodes",
    "running",
    "taint",
    "waiting",
]

Manifest = dict[str, Any]

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
STARTED = -3600
GRACE = 30
UID = "5c1e6b5e-6d0a-4c7b-9c51-0a4c2f0e9b11"


def at(seconds: float) -> str:
    """Return a moment as Kubernetes writes it: in whole seconds."""
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- containers -----------------------------------------------------------------------------------------


def running(since: float = STARTED) -> Manifest:
    return {"running": {"startedAt": at(since)}}


def waiting(reason: str = "ContainerCreating", message: str = "") -> Manifest:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def exited(
    code: int, *, after: float = 0, reason: str = "", message: str = "", since: float = STARTED
) -> Manifest:
    """Return the state of a container that ended so many seconds after the first failure."""
    ended = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
    ended |= {"startedAt": at(since), "finishedAt": at(after), "containerID": "containerd://7d1f"}
    return {"terminated": ended | ({"message": message} if message else {})}


# --- pods -----------------------------------------------------------------------------------------------


def mark(reason: str, message: str = "", *, after: float = 0, status: str = "True") -> Manifest:
    """Return the condition DisruptionTarget."""
    condition = {"type": "DisruptionTarget", "status": status, "lastTransitionTime": at(after)}
    return condition | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def evicted_mark(*, after: float = 0) -> Manifest:
    return mark("EvictionByEvictionAPI", "Eviction API: evicting", after=after)


def pod(
    rank: int,
    phase: str,
    state: Manifest | None,
    *marks: Manifest,
    hosts: int = 0,
    init: Manifest | None = None,
    deleted: float | None = None,
    grace: int = GRACE,
    placed: bool = True,
    made: float = STARTED - 100,
    **status: Any,
) -> Manifest:
    """Return a pod of the first attempt, on the node of its rank.

    `hosts` is the number of hosts of a slice in a gang of slices, `deleted` when its deletion was asked for,
    `init` the state of its init container, `made` when it was created.
    """
    slice_index, host = divmod(rank, hosts) if hosts else (0, rank)
    name = f"train-a1-slice-{slice_index}-{host}"
    labels = {
        LABEL_JOB: "train",
        LABEL_ATTEMPT: "1",
        LABEL_JOBSET_NAME: "train-a1",
        LABEL_JOBSET_UID: UID,
        LABEL_JOB_INDEX: str(slice_index),
        LABEL_COMPLETION_INDEX: str(host),
        "batch.kubernetes.io/job-name": f"train-a1-slice-{slice_index}",
    }
    metadata: Manifest = {
        "name": f"{name}-x7x2p",
        "generateName": f"{name}-",
        "namespace": "ml",
        "uid": f"{UID[:-2]}{rank:02}",
        "resourceVersion": "71624",
        "creationTimestamp": at(made),
        "labels": labels,
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    if deleted is not None:
        metadata |= {"deletionTimestamp": at(deleted + grace), "deletionGracePeriodSeconds": grace}
    on = {"nodeName": f"node-{rank}"} if placed else {}
    container = {"name": CONTAINER, "image": "train:1", "resources": {"requests": {"memory": "1Gi"}}}
    placed_since = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(made)}
    common = {"image": "train:1", "ready": False, "restartCount": 0, "lastState": {}}
    states: Manifest = {}
    if state is not None:
        states["containerStatuses"] = [{"name": CONTAINER, "state": state, **common}]
    if init is not None:
        states["initContainerStatuses"] = [{"name": "fetch", "state": init, **common}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**on, "restartPolicy": "Never", "containers": [container]},
        "status": {
            "phase": phase,
            "conditions": [*marks, {"type": "Ready", "status": "False"}, *([placed_since] if placed else [])],
            "qosClass": "Burstable",
            **states,
            **status,
        },
    }


# --- what owns them -------------------------------------------------------------------------------------


def jobset(end: str | None = None, *, suspended: bool = False) -> Manifest:
    """Return the attempt's JobSet; `end` is Failed or Completed."""
    ended = {"type": end, "status": "True", "reason": "FailedJobs", "lastTransitionTime": at(0)}
    metadata = {"name": "train-a1", "namespace": "ml", "uid": UID, "creationTimestamp": at(STARTED - 101)}
    conditions = [] if end is None else [ended]
    return {
        "metadata": metadata,
        "spec": {"suspend": suspended},
        "status": {"conditions": conditions, "restarts": 0},
    }


def job(slice_index: int, reason: str, message: str, *, after: float = 0) -> Manifest:
    """Return the child Job of a slice, which has failed."""
    said = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": at(after)}
    return {
        "metadata": {
            "name": f"train-a1-slice-{slice_index}",
            "namespace": "ml",
            "labels": {LABEL_JOB_INDEX: str(slice_index), LABEL_JOBSET_UID: UID},
        },
        "status": {
            "failed": 1,
            "conditions": [{"type": "FailureTarget", **said}, {"type": "Failed", **said}],
        },
    }


# --- nodes ----------------------------------------------------------------------------------------------

SILENT = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Manifest:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def node(rank: int, ready: str = "True", *taints: Manifest, since: float = STARTED - 9999) -> Manifest:
    """Return the node of a rank; `ready` is the status of its condition Ready, `since` since when."""
    said = {"True": {"reason": "KubeletReady"}, "False": {"reason": "KubeletNotReady"}, "Unknown": SILENT}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": at(since), **said[ready]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{rank}", "labels": {"kubernetes.io/hostname": f"node-{rank}"}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, condition]},
    }


def ready_nodes(*, but: tuple[int, ...] = ()) -> tuple[Manifest, ...]:
    """Return four nodes that are well, but for some ranks'."""
    return tuple(node(rank) for rank in range(4) if rank not in but)
