"""Hosts that a node, a controller or somebody takes away, and what kubelets refuse."""

from __future__ import annotations

from typing import Any

from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import (
    T0,
    evicted_mark,
    exited,
    jobset,
    mark,
    pod,
    running,
)
from tests.unit.plan.verdict_situations.situation import (
    CONTAINERD,
    E2E,
    GKE,
    KUBERNETES,
    PAIR,
    SINGLE,
    SLICES,
    Manifest,
    Scene,
    Situation,
    preemption,
)

__all__ = ["SITUATIONS"]

SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
SHUT = mark("TerminationByKubelet", SHUTDOWN)
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52612Ki. "
LOST = "The container could not be located when the pod was terminated"
CREATE = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
NEVER = -T0.timestamp()
"""When a container began that never did, as kubelets tell it: 1970."""
COORDINATOR = "jax: coordination service error: connection reset by peer"
NODE_SHUTDOWN = KUBERNETES + "pkg/kubelet/nodeshutdown/nodeshutdown_manager.go"
EVICTION = KUBERNETES + "pkg/kubelet/eviction/eviction_manager.go"
PREEMPTION = KUBERNETES + "pkg/kubelet/preemption/preemption.go"
POD_GC = KUBERNETES + "pkg/controller/podgc/gc_controller.go"
TERMINATE = KUBERNETES + "pkg/kubelet/status/status_manager.go"


def taken(name: str, source: str, *pods: Manifest, says: tuple[str, ...], **more: Any) -> Situation:
    """Return a situation in which hosts are taken away: charged to preemptions, seen at once."""
    return preemption(name, source, Scene(1, pods), says=says, **more)


def refused(name: str, source: str, reason: str, message: str) -> Situation:
    """Return a pod that the kubelet refused: it never had a container, nor a condition."""
    told = "Pod was rejected: " + message
    failed = pod(0, "Failed", None, reason=reason, message=told, made=-1)
    return taken(name, source, failed, says=("was taken away", reason, message), shape=SINGLE, ran=False)


ENDED = (
    taken(
        "spot preemption, the kubelet has its last word",
        NODE_SHUTDOWN,
        pod(0, "Failed", exited(143), SHUT, reason="Terminated", message=SHUTDOWN),
        says=("rank 0 (slice 0, host 0) was taken away", "TerminationByKubelet", "imminent node shutdown"),
        code=143,
    ),
    taken(
        "spot preemption, the grace runs out",
        NODE_SHUTDOWN,
        pod(0, "Failed", exited(137, after=15), SHUT, reason="Terminated", message=SHUTDOWN),
        says=("TerminationByKubelet",),
        code=137,
        within=20,
    ),
    taken(
        "spot preemption, the program saves its state and exits with 0",
        NODE_SHUTDOWN,
        pod(0, "Failed", exited(0), SHUT, reason="Terminated", message=SHUTDOWN),
        says=("imminent node shutdown",),
        code=0,
    ),
    taken(
        "node shutdown as kubelets before 1.26 told it, without the condition",
        KUBERNETES.replace("v1.34.4", "v1.25.0") + "pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go",
        pod(0, "Failed", exited(143), reason="Terminated", message=SHUTDOWN),
        says=("Terminated", "imminent node shutdown"),
        code=143,
    ),
    taken(
        "node shutdown in the words of GKE's older nodes",
        GKE + "concepts/spot-vms",
        pod(0, "Failed", exited(143), reason="Shutdown", message="Node is shutting, evicting pods"),
        says=("Shutdown", "evicting pods"),
        code=143,
    ),
    taken(
        "a drain",
        E2E + "test_taken_away.py; " + KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        pod(0, "Failed", exited(143), evicted_mark(), deleted=0),
        says=("EvictionByEvictionAPI: Eviction API: evicting",),
        code=143,
    ),
    taken(
        "a drain whose program catches SIGTERM and exits with 1",
        KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        pod(0, "Failed", exited(1, message="Traceback\nKeyboardInterrupt"), evicted_mark(), deleted=0),
        says=("EvictionByEvictionAPI", "KeyboardInterrupt"),
        code=1,
    ),
    taken(
        "preemption by a pod of higher priority",
        KUBERNETES + "pkg/scheduler/framework/preemption/preemption.go",
        pod(
            0,
            "Failed",
            exited(143),
            mark(
                "PreemptionByScheduler",
                "default-scheduler: preempting to accommodate a higher priority pod",
            ),
            deleted=0,
        ),
        says=("PreemptionByScheduler", "higher priority pod"),
        code=143,
    ),
    taken(
        "a taint that the job doesn't tolerate, while the kubelet lives",
        KUBERNETES + "pkg/controller/tainteviction/taint_eviction.go",
        pod(
            0,
            "Failed",
            exited(143),
            mark("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            deleted=0,
        ),
        says=("DeletionByTaintManager",),
        code=143,
    ),
    taken(
        "a device that is taken from its pods",
        KUBERNETES + "pkg/controller/devicetainteviction/device_taint_eviction.go",
        pod(
            0,
            "Failed",
            exited(143),
            mark("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"),
            deleted=0,
        ),
        says=("DeletionByDeviceTaintManager",),
        code=143,
    ),
    taken(
        "the node was deleted",
        POD_GC,
        pod(
            0,
            "Failed",
            running(),
            mark("DeletionByPodGC", "PodGC: node no longer exists"),
            deleted=0,
            grace=0,
        ),
        says=("DeletionByPodGC: PodGC: node no longer exists",),
    ),
    taken(
        "the node is out of service and its pods are given up, without a condition",
        POD_GC,
        pod(0, "Failed", running(), deleted=0, grace=0),
        says=("its node was given up while it ran",),
    ),
    taken(
        "the node is out of service and a peer crashed before",
        POD_GC,
        pod(0, "Failed", exited(1, message=COORDINATOR)),
        pod(1, "Failed", running(), deleted=0, grace=0),
        says=("rank 0 (slice 0, host 0) exited with code 1; rank 1", "given up", COORDINATOR),
        code=1,
        shape=PAIR,
    ),
    taken(
        "the node is short of memory that others use",
        EVICTION,
        pod(0, "Failed", exited(137), mark("TerminationByKubelet", LOW), reason="Evicted", message=LOW),
        says=("TerminationByKubelet", "low on resource: memory"),
        code=137,
    ),
    taken(
        "the node is short of processes, as kubelets before 1.26 told it",
        KUBERNETES.replace("v1.34.4", "v1.25.0") + "pkg/kubelet/eviction/eviction_manager.go",
        pod(0, "Failed", exited(137), reason="Evicted", message="The node was low on resource: pids. "),
        says=("Evicted: The node was low on resource: pids.",),
        code=137,
    ),
    taken(
        "a critical pod needs the room",
        PREEMPTION,
        pod(
            0,
            "Failed",
            exited(137),
            mark("TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod."),
            reason="Preempting",
            message="Preempted in order to admit critical pod",
        ),
        says=("accommodate a critical pod",),
        code=137,
    ),
    taken(
        "a critical pod needs the room, as kubelets before 1.26 told it",
        KUBERNETES.replace("v1.34.4", "v1.25.0") + "pkg/kubelet/preemption/preemption.go",
        pod(
            0, "Failed", exited(137), reason="Preempting", message="Preempted in order to admit critical pod"
        ),
        says=("Preempting: Preempted in order to admit critical pod",),
        code=137,
    ),
    taken(
        "the kubelet was restarted and has lost the container",
        TERMINATE,
        pod(
            0,
            "Failed",
            {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST}},
        ),
        says=(LOST,),
        code=137,
    ),
    taken(
        "the node was rebooted, and containerd doesn't know how its containers ended",
        CONTAINERD + "pkg/cri/server/restart.go",
        pod(0, "Failed", exited(255, reason="Unknown")),
        says=("the container's end was not seen",),
        code=255,
    ),
    taken(
        "a sign without words",
        "made: no controller of Kubernetes leaves them out",
        pod(0, "Failed", exited(143), mark("")),
        says=("was taken away (DisruptionTarget)",),
        code=143,
    ),
)

PEERS = (
    Situation(
        "spot preemption, the peer loses its coordinator first, the sign comes two seconds later",
        NODE_SHUTDOWN,
        (
            Scene(
                0.5,
                (pod(0, "Running", running()), pod(1, "Failed", exited(1, message=COORDINATOR))),
                jobset=jobset(),
            ),
            Scene(
                2.5,
                (
                    pod(
                        0,
                        "Failed",
                        exited(143, after=2),
                        SHUT,
                        reason="Terminated",
                        message=SHUTDOWN,
                        deleted=1,
                    ),
                    pod(1, "Failed", exited(1, message=COORDINATOR)),
                ),
            ),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 1 (slice 0, host 1) exited with code 1; rank 0 (slice 0, host 0) was taken away", COORDINATOR),
        first=1,
        code=1,
        shape=PAIR,
    ),
    Situation(
        "a drain that is seen only after the whole gang has crashed",
        KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        (
            Scene(0.5, (pod(0, "Failed", exited(1)), pod(1, "Failed", exited(143)))),
            Scene(3, (pod(0, "Failed", exited(1)), pod(1, "Failed", exited(143), evicted_mark(after=2)))),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 0 (slice 0, host 0) exited with code 1; rank 1", "EvictionByEvictionAPI"),
        code=1,
        shape=PAIR,
    ),
    taken(
        "one host of two slices is drained, all the others crash in the same second",
        KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        *(pod(rank, "Failed", exited(1), hosts=2) for rank in range(3)),
        pod(3, "Failed", exited(143), evicted_mark(), deleted=0, hosts=2),
        says=("rank 3 (slice 1, host 1) was taken away",),
        first=3,
        code=143,
        shape=SLICES,
    ),
    taken(
        "a host is evicted first, then a peer runs out of memory",
        KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        pod(0, "Failed", exited(143), evicted_mark(), deleted=0),
        pod(1, "Failed", exited(137, after=5, reason="OOMKilled")),
        says=("rank 0 (slice 0, host 0) was taken away",),
        code=143,
        shape=PAIR,
    ),
    Situation(
        "an eviction that was refused in the end: the sign was taken back, and the program failed later",
        KUBERNETES + "pkg/controller/disruption/disruption.go",
        (Scene(1, (pod(0, "Failed", exited(1), mark("EvictionByEvictionAPI", status="False")),)),),
        Reason.NON_ZERO_EXIT,
        VerdictKind.FAILURE,
        ("exited with code 1",),
        code=1,
    ),
    Situation(
        "a drain whose program saves its state and exits with 0: for Kubernetes it has finished",
        KUBERNETES + "pkg/controller/job/job_controller.go",
        (Scene(1, (pod(0, "Succeeded", exited(0), evicted_mark(), deleted=0),), jobset=jobset("Completed")),),
        Reason.COMPLETED,
        VerdictKind.SUCCESS,
        ("the host exited with code 0",),
        first=None,
    ),
)

ADMIT = KUBERNETES + "pkg/kubelet/lifecycle/predicate.go"
REFUSED = (
    refused(
        "the TPU plugin has no healthy chips",
        KUBERNETES + "pkg/kubelet/cm/admission/errors.go",
        "UnexpectedAdmissionError",
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
        "google.com/tpu, which is unexpected",
    ),
    refused(
        "the scheduler and the kubelet don't agree about CPU",
        ADMIT,
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 8000, used: 1200, capacity: 8000",
    ),
    refused(
        "they don't agree about memory",
        ADMIT,
        "OutOfmemory",
        "Node didn't have enough resource: memory, requested: 34359738368, used: 1, capacity: 34359738368",
    ),
    refused(
        "they don't agree about chips",
        ADMIT,
        "OutOfgoogle.com/tpu",
        "Node didn't have enough resource: google.com/tpu, requested: 4, used: 4, capacity: 4",
    ),
    refused("there are too many pods", ADMIT, "OutOfpods", "Node didn't have enough resource: pods"),
    refused(
        "the node has come back without its labels",
        ADMIT,
        "NodeAffinity",
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    refused(
        "the node was tainted after the pod was placed",
        ADMIT,
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    ),
    refused("another pod has the port", ADMIT, "NodePorts", "Predicate NodePorts failed"),
    refused(
        "the node is shutting down already",
        NODE_SHUTDOWN,
        "NodeShutdown",
        "Pod was rejected as the node is shutting down.",
    ),
    refused(
        "the disk is full already", EVICTION, "Evicted", "The node had condition: [DiskPressure]. ".strip()
    ),
    refused(
        "the chips that are left aren't beside each other",
        KUBERNETES + "pkg/kubelet/cm/topologymanager/topology_manager.go",
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    ),
    refused(
        "the machine can't take another disk",
        KUBERNETES + "pkg/kubelet/volumemanager/volume_manager.go",
        "VolumeAttachmentLimitExceeded",
        "volume attachment limit exceeded",
    ),
    Situation(
        "one host of a gang is refused, and its peer ended with the JobSet",
        ADMIT,
        (
            Scene(
                1,
                (
                    pod(0, "Failed", exited(143, after=1, since=-2), deleted=0, made=-3),
                    pod(1, "Failed", None, reason="OutOfcpu", message="Pod was rejected: no cpu", made=-3),
                ),
            ),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 1 (slice 0, host 1) was taken away (OutOfcpu",),
        first=1,
        shape=PAIR,
        ran=False,
    ),
    *(
        Situation(
            f"the kubelet refuses what the pod asks for ({reason})",
            KUBERNETES + source,
            (
                Scene(
                    1, (pod(0, "Failed", None, reason=reason, message=f"Pod was rejected: {told}", made=-1),)
                ),
            ),
            Reason.START_FAILED,
            VerdictKind.FAILURE,
            ("could not start", told),
            ran=False,
        )
        for reason, told, source in (
            ("SysctlForbidden", "forbidden sysctl: net.core.somaxconn", "pkg/kubelet/sysctl/allowlist.go"),
            ("AppArmor", "Cannot enforce AppArmor", "pkg/kubelet/lifecycle/handlers.go"),
        )
    ),
)

UNSTARTED = tuple(
    taken(
        f"the node's runtime can't start the container: {told}",
        CONTAINERD + "pkg/cri/server/container_start.go",
        pod(0, "Failed", exited(128, reason="StartError", message=CREATE + told, since=NEVER)),
        says=("was taken away (its node could not start it", told),
        shape=SINGLE,
        code=128,
        ran=False,
    )
    for told in (
        "unable to create new parent process: namespace path: lstat /proc/0/ns/ipc: no such file",
        "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        "write /run/containerd/config.json: no space left on device",
        "context deadline exceeded",
        "context canceled",
    )
)

SITUATIONS = (*ENDED, *PEERS, *REFUSED, *UNSTARTED)
