"""What a pod says of who ended it: its node, a controller, somebody's eviction or deletion, or its own use.

Kubernetes has one condition for most of it and as many exceptions: what a kubelet refuses has none, and what
it evicts for its own use may have one. A pod that is deleted, by `kubectl delete pod` for example, has none
either: only its deletion, which came before its end, tells. Who deleted it doesn't show, since the Job
controller deletes the peers of a pod that failed in just this way: what follows for the gang is `verdict`'s
to say.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from fray.plan.manifests import Manifest, find_condition
from fray.plan.observation import KILL_CODES, OOM_KILLED, Deletion, Evidence, EvidenceKind
from fray.plan.timestamps import CLOCK_SKEW, parse_time

__all__ = [
    "MARKS",
    "START_REASONS",
    "find_mark",
    "find_start_fault",
    "is_ended_by_deletion",
    "is_lost",
    "is_own_use",
    "is_refused",
    "read_deletion",
    "read_evidence",
    "was_never_made",
]

MARKS = ("DisruptionTarget", "TerminationTarget")
"""Conditions of pods that somebody takes away: Kubernetes' own, and Kueue's on pods that it manages singly.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
https://github.com/kubernetes-sigs/kueue/blob/main/pkg/controller/jobs/pod/pod_controller.go
"""
MISPLACED_REASON = "ExclusivePlacementViolation"
"""Reason of the condition DisruptionTarget on pods that JobSet removes for standing in another slice's pool:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/pod_controller.go
"""
LOST_REASONS = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Container reasons where nobody saw how it ended, as after a reboot: of the kubelet, and of containerd.

https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/status/status_manager.go
https://github.com/containerd/containerd/blob/v1.7.28/pkg/cri/server/helpers.go
"""
EVICTED = "Evicted"
OWN_USE = re.compile("exceed|has larger consumption of")
"""In the kubelet's message about a pod that it evicted for what the pod itself used:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/eviction/helpers.go
"""
NODE_REASONS = frozenset(
    {
        # The kubelet ended it: its node shuts down (two older words too), or a critical pod needs its room.
        "Terminated",
        "Shutdown",
        "NodeShutdown",
        "Preempting",
        # It refused it at admission: the node isn't, or has no longer, what the scheduler took it for.
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "TopologyAffinityError",
        "VolumeAttachmentLimitExceeded",
        "InvalidNodeInfo",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        # The node lifecycle controller gave the pod up.
        "NodeLost",
    }
)
"""Reasons of pods that ended for what their node is or does:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/lifecycle/predicate.go
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/nodeshutdown/nodeshutdown_manager.go
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/preemption/preemption.go
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/admission/errors.go
"""
NO_ROOM_PREFIX = "OutOf"
"""Begins the reason of a pod that the kubelet has no room for: `OutOfcpu`, `OutOfgoogle.com/tpu`."""
REFUSED_PREFIX = "Pod was rejected: "
"""Begins the kubelet's message about a pod that it refused:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/kubelet.go
"""
START_REASONS = frozenset({"StartError", "ContainerCannotRun"})
"""Container reasons of the kubelet when the runtime could not start the command."""
RUNTIME_TROUBLE = re.compile(
    r"nvidia-container-cli: (?:initialization|detection|device|ldcache|mount) error"
    r"|/dev/(?:nvidia|vfio|accel)|\bcgroups?\b|no space left on device|input/output error"
    r"|context (?:deadline exceeded|canceled)|\bttrpc: closed|containerd\.sock"
    r"|unable to create new parent process"
)
"""In the message of a container that could not be started, when that isn't about its command or image.

runc, containerd and https://github.com/NVIDIA/libnvidia-container say so; the last one's `requirement error`
is about the CUDA version of the image. Without a parent process are containers whose pod's sandbox containerd
lost sight of, as on a node that was too busy to answer for two seconds: `lstat /proc/0/ns/ipc`. A kubelet
that is ended itself cancels what it is just starting.
"""
GIVEN_UP_REASON = "DeletionByTaintManager"
"""Reason of the mark on pods of a node that has been silent for so long that they are given up:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/controller/tainteviction/taint_eviction.go
"""
NODE_IS_LOW = "The node was low on resource: "
"""In the kubelet's words about pods that it evicts for want of memory, disk or processes:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/eviction/helpers.go
"""
LOST = "could not be located"
"""In the kubelet's words about a container that its runtime has lost:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/status/status_manager.go
"""
GIVEN_UP = "its node was given up while it ran: nobody has seen its end"


def find_mark(pod: Manifest) -> Manifest:
    """Return the condition that marks a pod which somebody takes away; empty where it has none."""
    return find_condition(pod, *MARKS, status="True")


def is_own_use(status: Manifest) -> bool:
    """Return whether a pod was evicted for what it used itself; Kubernetes may mark that as a disruption."""
    return status.get("reason") == EVICTED and OWN_USE.search(status.get("message", "")) is not None


def is_refused(status: Manifest) -> bool:
    """Return whether the kubelet refused the pod for what the pod itself asks for, which no retry changes."""
    refused = status.get("phase") == "Failed" and status.get("message", "").startswith(REFUSED_PREFIX)
    return refused and not _is_nodes_doing(status)


def is_lost(ended: Manifest) -> bool:
    """Return whether the state of a container that has ended tells nothing of how it did."""
    return ended.get("reason") in LOST_REASONS


def was_never_made(container: Manifest) -> bool:
    """Return whether a container whose end nobody saw has none since it never was: its pod ended before.

    The kubelet says of both that they could not be located; what ran has an id, or an earlier state.
    """
    ended = container.get("state", {}).get("terminated", {})
    return is_lost(ended) and not (container.get("containerID") or container.get("lastState"))


def is_ended_by_deletion(pod: Manifest, ended: Manifest) -> bool:
    """Return whether a pod that has failed did so because it was deleted.

    `ended` is the state of the container that failed, empty where none has ended. A container that was
    killed ended by the deletion unless that came long after; one that exited by another code, as programs
    do that catch SIGTERM, only when it did so after it. A pod that the kubelet refused, evicted or ended for
    its deadline says so, and memory that ran out is no deletion either.
    """
    deletion = read_deletion(pod["metadata"])
    if deletion is None or pod.get("status", {}).get("reason"):
        return False
    if not ended:
        return True
    if ended.get("reason") == OOM_KILLED or not ended.get("finishedAt"):
        return False
    finished = parse_time(ended["finishedAt"])
    killed = ended.get("exitCode") in KILL_CODES
    return finished >= deletion.asked - CLOCK_SKEW if killed else finished > deletion.asked


def read_deletion(metadata: Manifest) -> Deletion | None:
    """Return since when a pod is being deleted, None while it isn't: its timestamp is when its time is up.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
    """
    deleted = metadata.get("deletionTimestamp")
    if deleted is None:
        return None
    due = parse_time(deleted)
    return Deletion(due - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0), due)


def read_evidence(pod: Manifest, state: Manifest, ended: Manifest) -> Evidence | None:
    """Return the sign that a pod is or was taken away from outside, None where it has none.

    `state` is that of its main container, `ended` the end of that, or of the init container that failed.
    """
    status = pod.get("status", {})
    if not is_own_use(status):
        mark = find_mark(pod)
        if mark and mark.get("reason") != MISPLACED_REASON:
            return _read_mark(mark)
        if status.get("phase") == "Failed" and _is_nodes_doing(status):
            return _of_pod(EvidenceKind.TAKEN, _join(status.get("reason"), status.get("message")))
        if is_lost(terminated := state.get("terminated", {})):
            message = str(terminated.get("message") or "the container's end was not seen")
            return _of_pod(
                EvidenceKind.CONTAINER_LOST if LOST in message else EvidenceKind.END_UNSEEN, message
            )
        if status.get("phase") == "Failed" and state.get("running") and not status.get("reason"):
            # Pod GC ends pods so on nodes that are out of service; a kubelet would tell how it ended.
            return _of_pod(EvidenceKind.NODE_SILENT, GIVEN_UP)
        if ended.get("reason") in START_REASONS:
            fault = find_start_fault(str(ended.get("message", "")))
            if fault is not None:
                return _of_pod(EvidenceKind.NOT_STARTED, f"its node could not start it: {fault}")
        return _of_pod(EvidenceKind.MISPLACED, _join(mark["reason"], mark.get("message"))) if mark else None
    return None


def _read_mark(mark: Manifest) -> Evidence:
    text = _join(mark.get("reason"), mark.get("message")) or "DisruptionTarget"
    kind = EvidenceKind.NODE_SILENT if mark.get("reason") == GIVEN_UP_REASON else EvidenceKind.TAKEN
    at = mark.get("lastTransitionTime")
    return _of_pod(kind, text, parse_time(at) if at else None)


def _of_pod(kind: EvidenceKind, text: str, at: datetime | None = None) -> Evidence:
    kind = EvidenceKind.NODE_LOW if NODE_IS_LOW in text else kind
    return Evidence(kind, text, at)


def find_start_fault(message: str) -> str | None:
    """Return the line that says what the node's runtime lacks, None where there is none."""
    return next((line.strip() for line in message.splitlines() if RUNTIME_TROUBLE.search(line)), None)


def _is_nodes_doing(status: Manifest) -> bool:
    reason = status.get("reason") or ""
    # An eviction without its own fault: others used too much, or the node was short before it was admitted.
    evicted = reason == EVICTED and not is_own_use(status)
    return evicted or reason in NODE_REASONS or reason.startswith(NO_ROOM_PREFIX)


def _join(*words: str | None) -> str:
    return ": ".join(filter(None, words))
