"""Which ends of hosts tell that their node is broken: a node that is taken away, or wanted, isn't."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.node_faults import (
    DEVICE_TROUBLE,
    describe_node_fault,
    is_infrastructure_fault,
    with_node_pools,
)
from fray.plan.observation import (
    Deletion,
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.timestamps import parse_time
from fray.testing import MOMENT, build_disruption_mark, build_frayjob, build_jobset, build_pod, exited

LIVE = build_jobset()
UNHEALTHY = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "google.com/tpu, which is unexpected"
)
LOST = "The container could not be located when the pod was terminated"
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
BUSY = (
    "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: "
    "open(/dev/vfio/0): Device or resource busy: Device or resource busy; Couldn't open iommu group"
)
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create: "
)


def pod(*, mark: tuple[str, str] | None = None, leaving: bool = False, **status: Any) -> dict[str, Any]:
    marks = [] if mark is None else [build_disruption_mark(*mark)]
    return build_pod(0, "Failed", node="node-7", deleted=MOMENT if leaving else None, marks=marks, **status)


def ended(code: int, message: str = "", *, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return pod(state=exited(code, reason=reason, message=message), **more)


def lost(**more: Any) -> dict[str, Any]:
    return pod(state=exited(137, reason="ContainerStatusUnknown", message=LOST), **more)


def see(manifest: dict[str, Any]) -> GangObservation:
    return derive_gang_observation(derive_gang(build_frayjob().spec), LIVE, [manifest])


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        # the kubelet refuses the pod
        (pod(reason="UnexpectedAdmissionError", message=UNHEALTHY), f"UnexpectedAdmissionError: {UNHEALTHY}"),
        (pod(reason="UnexpectedAdmissionError"), "UnexpectedAdmissionError"),
        (
            pod(
                reason="TopologyAffinityError", message="Resources cannot be allocated with Topology locality"
            ),
            "TopologyAffinityError: Resources cannot be allocated with Topology locality",
        ),
        (
            pod(reason="OutOfgoogle.com/tpu", message="Pod was rejected: Node didn't have enough resource"),
            "OutOfgoogle.com/tpu: Pod was rejected: Node didn't have enough resource",
        ),
        (
            pod(reason="Evicted", message="Pod was rejected: The node had condition: [MemoryPressure]. "),
            "Pod was rejected: The node had condition: [MemoryPressure].",
        ),
        # the node fell silent, ran short, or lost its container
        (
            pod(
                mark=("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
                leaving=True,
            ),
            "DeletionByTaintManager: Taint manager: deleting due to NoExecute taint",
        ),
        (
            ended(137, reason="Error", mark=("TerminationByKubelet", LOW)),
            f"TerminationByKubelet: {LOW.strip()}",
        ),
        (lost(), LOST),
        # the runtime can't start what would start elsewhere
        (
            ended(128, RUNC + "nvidia-container-cli: initialization error: nvml error", reason="StartError"),
            RUNC + "nvidia-container-cli: initialization error: nvml error",
        ),
        (
            ended(128, "unable to apply cgroup configuration: no space left", reason="StartError"),
            "unable to apply cgroup configuration: no space left",
        ),
        (
            ended(128, "gathering device information: /dev/vfio/3: no such file", reason="StartError"),
            "gathering device information: /dev/vfio/3: no such file",
        ),
        (ended(128, "write: no space left on device", reason="StartError"), "write: no space left on device"),
        (ended(128, "context deadline exceeded", reason="ContainerCannotRun"), "context deadline exceeded"),
        # the program's last words name broken chips
        (ended(1, f"Traceback:\n  {BUSY}\nbye"), BUSY),
        (
            ended(1, "open(/dev/accel0): Device or resource busy"),
            "open(/dev/accel0): Device or resource busy",
        ),
        (
            ended(1, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        ),
        (ended(1, "dmesg: Xid 94: contained ECC error"), "dmesg: Xid 94: contained ECC error"),
        (
            ended(1, "CUDA error: uncorrectable ECC error encountered"),
            "CUDA error: uncorrectable ECC error encountered",
        ),
        (
            ended(1, "Failed to initialize NVML: Driver/library version mismatch"),
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        (
            ended(1, "Unable to determine the device handle: GPU is lost."),
            "Unable to determine the device handle: GPU is lost.",
        ),
    ],
)
def test_ends_that_tell_of_a_broken_node(manifest: dict[str, Any], told: str) -> None:
    (host,) = see(manifest).hosts
    words = describe_node_fault(host)
    assert words is not None
    assert words == told if len(told) <= 160 else words == f"{told[:157]}..."


@pytest.mark.parametrize(
    "manifest",
    [
        # the node goes, for whatever reason
        pod(
            reason="Terminated",
            message="Pod was terminated in response to imminent node shutdown.",
            mark=("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
        ),
        pod(reason="NodeShutdown", message="Pod was rejected as the node is shutting down."),
        pod(mark=("DeletionByPodGC", "PodGC: node no longer exists")),
        lost(mark=("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")),
        # somebody wants its room, or the pod gone
        ended(143, mark=("EvictionByEvictionAPI", "Eviction API: evicting"), leaving=True),
        ended(143, mark=("PreemptionByScheduler", "default-scheduler: preempting"), leaving=True),
        ended(
            143, mark=("TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod.")
        ),
        pod(reason="Preempting", message="Preempted in order to admit critical pod"),
        ended(1, "no healthy devices", mark=("EvictionByEvictionAPI", "evicting"), leaving=True),
        ended(137, leaving=True),
        # of a container that never ran the kubelet says that it is lost when its pod is deleted
        lost(leaving=True),
        # it is short of what others use for a moment
        pod(reason="OutOfcpu", message="Node didn't have enough resource: cpu, requested: 8000"),
        pod(reason="OutOfmemory", message="Node didn't have enough resource: memory"),
        pod(reason="OutOfpods", message="Node didn't have enough resource: pods"),
        pod(reason="OutOfephemeral-storage", message="Node didn't have enough resource: ephemeral-storage"),
        # the pod isn't for this node, whichever it is
        pod(reason="NodeAffinity", message="Pod was rejected: Predicate NodeAffinity failed"),
        pod(reason="SysctlForbidden", message="forbidden sysctl"),
        # its own use, its own command, its own end
        pod(
            reason="Evicted", message=f"{LOW}Container main was using 9Gi, has larger consumption of memory. "
        ),
        lost(
            reason="Evicted",
            message="Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
            mark=("TerminationByKubelet", "Pod ephemeral local storage usage exceeds the total limit"),
        ),
        ended(127, RUNC + 'exec: "trian": executable file not found in $PATH', reason="StartError"),
        ended(126, RUNC + "exec ./train: permission denied", reason="StartError"),
        ended(128, RUNC + "nvidia-container-cli: requirement error: cuda>=12.4", reason="StartError"),
        ended(137, reason="OOMKilled"),
        ended(1, "Traceback: ValueError"),
        ended(1, "PollForError: coordination service: connection to rank 3 lost"),
        *(ended(1, f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1") for number in (13, 31, 43, 45, 68, 109)),
        ended(1, "Xid 13: graphics exception"),
        ended(1, "bind: Device or resource busy"),
        ended(1, "The TPU is already in use by process with pid 12"),
    ],
)
def test_ends_that_tell_nothing_of_the_node(manifest: dict[str, Any]) -> None:
    (host,) = see(manifest).hosts
    assert host.failed or host.disruption is not None, "the row is what it says"
    assert not is_infrastructure_fault(host)


def test_last_words_that_are_nearly_a_fault_are_read_through_once() -> None:
    # Going through it once for each of its characters would take hours, and hold up all jobs.
    for nearly in (
        "Xid" + " " * 1_000_000,
        "Xid(" + " " * 1_000_000,
        "Xid()" + " " * 1_000_000,
        "Xid (" * 200_000,
    ):
        assert DEVICE_TROUBLE.search(nearly) is None
    assert DEVICE_TROUBLE.search("Xid (0000:3b:00) : 113") is not None


def taken(kind: EvidenceKind, *, deletion: Deletion | None = None) -> HostObservation:
    sign = Evidence(kind, "its node node-7 has been silent, unreachable and given up")
    return HostObservation(0, 0, 0, "pod", HostPhase.RUNNING, node="node-7", evidence=sign, deletion=deletion)


BROKEN = {EvidenceKind.NODE_SILENT, EvidenceKind.NODE_LOW, EvidenceKind.CONTAINER_LOST}


@pytest.mark.parametrize("kind", EvidenceKind)
def test_what_took_a_host_tells_by_its_kind_whether_the_node_is_broken(kind: EvidenceKind) -> None:
    """Whatever its text says."""
    assert is_infrastructure_fault(taken(kind)) is (kind in BROKEN)


def test_a_spot_node_that_falls_silent_is_mostly_taken_back() -> None:
    assert not is_infrastructure_fault(taken(EvidenceKind.NODE_SILENT), spot=True)
    assert is_infrastructure_fault(taken(EvidenceKind.NODE_LOW), spot=True)


def test_a_container_that_is_lost_as_its_pod_is_deleted_tells_nothing() -> None:
    """Of one that never ran the kubelet says so too."""
    moment = parse_time(MOMENT)
    assert not is_infrastructure_fault(taken(EvidenceKind.CONTAINER_LOST, deletion=Deletion(moment, moment)))


def test_a_spot_node_may_be_broken_too() -> None:
    (host,) = see(pod(reason="UnexpectedAdmissionError", message=UNHEALTHY)).hosts
    assert is_infrastructure_fault(host, spot=True)


def test_a_host_that_still_runs_has_no_last_words() -> None:
    host = HostObservation(0, 0, 0, "pod", HostPhase.RUNNING, node="node-7", message=BUSY)
    assert describe_node_fault(host) is None


def test_node_pools_are_told_of_broken_nodes_only() -> None:
    broken = HostObservation(0, 0, 0, "pod-0", HostPhase.FAILED, node="a", reason="UnexpectedAdmissionError")
    sound = HostObservation(0, 1, 1, "pod-1", HostPhase.RUNNING, node="b")
    gone = HostObservation(0, 2, 2, "pod-2", HostPhase.FAILED, node="c", reason="UnexpectedAdmissionError")
    found = with_node_pools(GangObservation((broken, sound, gone)), {"a": "pool-1", "b": "pool-1"})
    assert [host.node_pool for host in found.hosts] == ["pool-1", None, None]
