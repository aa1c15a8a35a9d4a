"""Nodes that die, go or are tainted, with a gang on them that can only crash."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations import situation
from tests.unit.plan.verdict_situations.manifests import (
    T0,
    exited,
    jobset,
    mark,
    node,
    pod,
    ready_nodes,
    running,
    taint,
)
from tests.unit.plan.verdict_situations.situation import (
    GKE,
    KUBERNETES,
    PAIR,
    SLICES,
    Manifest,
    Scene,
    Situation,
)

__all__ = ["SITUATIONS"]

LIFECYCLE = KUBERNETES + "pkg/controller/nodelifecycle/node_lifecycle_controller.go"
AUTOSCALER = (
    "made from https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/utils/taints/taints.go"
)
COORDINATOR = "jax: coordination service error: connection reset by peer"
UNREACHABLE = (
    taint("node.kubernetes.io/unreachable"),
    taint("node.kubernetes.io/unreachable", "NoExecute"),
)
NOT_READY = (taint("node.kubernetes.io/not-ready", "NoExecute"),)
CRASHED = pod(0, "Failed", exited(1, message=COORDINATOR))
LEFT = pod(1, "Running", running(), deleted=1)
"""The pod on the node that died: the Job controller asked for its end when its peer had failed."""
SILENT = (*ready_nodes(but=(1,)), node(1, "Unknown", *UNREACHABLE, since=45))
"""The control plane calls a kubelet silent 40 to 50 s after its last sign."""


failure = partial(situation.failure, code=1)
preemption = partial(situation.preemption, code=1)


def ended(*nodes: Manifest, at: float = 1, code: int = 1) -> Scene:
    """Return a pair that has ended: rank 0 crashed, and rank 1 with the JobSet; `nodes` are those of both."""
    return Scene(at, (pod(0, "Failed", exited(code)), pod(1, "Failed", exited(143), deleted=0)), nodes=nodes)


DEAD = preemption(
    "a node dies without a word: its peer crashes, its own pod hangs in Terminating",
    LIFECYCLE,
    Scene(1, (CRASHED, LEFT), jobset=jobset()),
    Scene(46, (CRASHED, LEFT), jobset=jobset(), nodes=SILENT),
    says=(
        "rank 0 (slice 0, host 0) exited with code 1; rank 1 (slice 0, host 1) was taken away",
        "node-1 has been silent since 2026-01-31T12:00:45",
        COORDINATOR,
    ),
    shape=PAIR,
    within=125,
)

HANGING = (
    DEAD,
    replace(
        DEAD,
        name="the same where nodes can't be read",
        scenes=tuple(replace(scene, nodes=None) for scene in DEAD.scenes),
        says=("rank 1 (slice 0, host 1) was taken away (it outlived its deletion",),
        within=350,
    ),
    preemption(
        "a node of the second slice dies, and with it a leader",
        LIFECYCLE,
        Scene(
            1,
            (
                *(pod(rank, "Failed", exited(1), hosts=2) for rank in (0, 1, 3)),
                pod(2, "Running", running(), deleted=1, hosts=2),
            ),
            nodes=(*ready_nodes(but=(2,)), node(2, "Unknown", *UNREACHABLE, since=-20)),
        ),
        says=("rank 2 (slice 1, host 0) was taken away (its node node-2 has been silent",),
        shape=SLICES,
        within=65,
    ),
    preemption(
        "the node of a lone host dies: nothing crashes, and the taint manager's deletion has no effect",
        KUBERNETES + "pkg/controller/tainteviction/taint_eviction.go",
        Scene(
            345,
            (
                pod(
                    0,
                    "Running",
                    running(),
                    mark(
                        "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", after=345
                    ),
                    deleted=345,
                ),
            ),
            jobset=jobset(),
            nodes=(node(0, "Unknown", *UNREACHABLE, since=45),),
        ),
        says=("rank 0 (slice 0, host 0) was taken away (DeletionByTaintManager",),
        code=None,
        within=410,
    ),
    preemption(
        "the machine is off, as its administrator says: it isn't waited for",
        "made from https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/",
        Scene(
            1,
            (CRASHED, LEFT),
            nodes=(
                node(0),
                node(1, "Unknown", taint("node.kubernetes.io/out-of-service", "NoExecute"), since=-1),
            ),
        ),
        says=("node-1 has been silent",),
        shape=PAIR,
        within=20,
    ),
    preemption(
        "the machine was stopped, as the cloud says",
        "made from https://github.com/kubernetes/cloud-provider/blob/v0.34.4/api/well_known_taints.go",
        Scene(
            1,
            (CRASHED, LEFT),
            nodes=(node(0), node(1, "Unknown", taint("node.cloudprovider.kubernetes.io/shutdown"), since=0)),
        ),
        says=("node-1 has been silent",),
        shape=PAIR,
        within=20,
    ),
    preemption(
        "the node is removed while its peer crashes, and pod GC comes later",
        KUBERNETES + "pkg/controller/podgc/gc_controller.go",
        Scene(1, (CRASHED, LEFT), jobset=jobset(), nodes=ready_nodes(but=(1,))),
        Scene(
            70,
            (CRASHED, pod(1, "Failed", running(), deleted=1)),
            nodes=ready_nodes(but=(1,)),
        ),
        says=("rank 1 (slice 0, host 1) was taken away", "node node-1 is gone"),
        shape=PAIR,
        within=80,
    ),
    Situation(
        "a host runs out of memory, and then its peer's node dies",
        LIFECYCLE,
        (
            Scene(
                1,
                (pod(0, "Failed", exited(137, reason="OOMKilled")), LEFT),
                jobset=jobset(),
                nodes=(node(0), node(1, "Unknown", since=30)),
            ),
        ),
        Reason.OUT_OF_MEMORY,
        VerdictKind.FAILURE,
        ("rank 0 (slice 0, host 0) ran out of memory",),
        code=137,
        shape=PAIR,
        within=110,
    ),
    Situation(
        "a job is stopped while a node of it is dead: that doesn't keep it",
        LIFECYCLE,
        (Scene(1, (pod(0, "Running", running()),), jobset=jobset(), nodes=(node(0, "Unknown", since=-60),)),),
        Reason.STOP_REQUESTED,
        VerdictKind.STOPPED,
        ("spec.stopped is true",),
        first=None,
        shape={"stopped": True},
        within=40,
    ),
    Situation(
        "an attempt runs too long since a node of it is dead: that doesn't keep it either",
        LIFECYCLE,
        (Scene(1, (pod(0, "Running", running()),), jobset=jobset(), nodes=(node(0, "Unknown", since=-60),)),),
        Reason.ACTIVE_TIMEOUT,
        VerdictKind.FAILURE,
        ("spec.timeouts.activeSeconds (3600)",),
        first=None,
        shape={"timeouts": {"activeSeconds": 3600}},
        within=40,
    ),
)

ENDED = (
    preemption(
        "the kubelet reports that its node isn't ready, and the pods on it crash",
        LIFECYCLE,
        ended(node(0), node(1, "False", *NOT_READY, since=-5)),
        says=("rank 0 (slice 0, host 0) exited with code 1; rank 1", "node-1 has not been ready since"),
        shape=PAIR,
    ),
    preemption(
        "GKE announces that the node will end, and the kubelet has no last word",
        GKE + "how-to/handle-disruption-gpu-tpu",
        Scene(
            1,
            (pod(0, "Failed", exited(143)),),
            nodes=(node(0, "True", taint("cloud.google.com/impending-node-termination")),),
        ),
        says=("was taken away (its node node-0 has the taint cloud.google.com/impending-node-termination)",),
        code=143,
    ),
    preemption(
        "the autoscaler removes the node of a peer",
        AUTOSCALER,
        ended(
            node(0),
            node(1, "True", taint("ToBeDeletedByClusterAutoscaler", value=f"{T0.timestamp() - 30:.0f}")),
        ),
        says=("node-1 has the taint ToBeDeletedByClusterAutoscaler",),
        shape=PAIR,
    ),
    preemption(
        "the node of a peer was removed before anybody looked",
        LIFECYCLE,
        ended(node(0)),
        says=("rank 1 (slice 0, host 1) was taken away (its node node-1 is gone)",),
        shape=PAIR,
    ),
    preemption(
        "the sign on the node comes within the settle window",
        LIFECYCLE,
        ended(node(0), node(1)),
        ended(node(0), node(1, "False", since=3), at=3),
        says=("node-1 has not been ready since",),
        shape=PAIR,
    ),
    failure(
        "the program fails, and all nodes are well",
        LIFECYCLE,
        ended(node(0), node(1)),
        says=("rank 0 (slice 0, host 0) exited with code 1",),
        shape=PAIR,
    ),
    failure(
        "the program fails where nodes can't be read",
        LIFECYCLE,
        Scene(1, (pod(0, "Failed", exited(1)),), nodes=None),
        says=("exited with code 1",),
    ),
    failure(
        "the program fails on a node that is younger than the list of nodes",
        LIFECYCLE,
        Scene(1, (pod(0, "Failed", exited(1, since=-2), made=-5),), nodes=()),
        says=("exited with code 1",),
    ),
    failure(
        "no operator looked for ten minutes, and the idle node is being removed since",
        AUTOSCALER,
        ended(
            node(0, "True", taint("ToBeDeletedByClusterAutoscaler", value=f"{T0.timestamp() + 590:.0f}")),
            node(1),
            at=600,
        ),
        says=("exited with code 1",),
        shape=PAIR,
        within=610,
    ),
    failure(
        "no operator looked for ten minutes, and the node has become silent since",
        LIFECYCLE,
        ended(node(0), node(1, "Unknown", *UNREACHABLE, since=400), at=600),
        says=("exited with code 1",),
        shape=PAIR,
        within=610,
    ),
    failure(
        "no operator looked for ten minutes, and the node was removed since",
        LIFECYCLE,
        ended(node(1), at=600),
        says=("exited with code 1",),
        shape=PAIR,
        within=610,
    ),
    failure(
        "the node is cordoned by somebody, which takes nothing away",
        KUBERNETES + "pkg/controller/nodelifecycle/node_lifecycle_controller.go",
        Scene(
            1,
            (pod(0, "Failed", exited(1)),),
            nodes=(node(0, "True", taint("node.kubernetes.io/unschedulable")),),
        ),
        says=("exited with code 1",),
    ),
)

SITUATIONS = (*HANGING, *ENDED)
