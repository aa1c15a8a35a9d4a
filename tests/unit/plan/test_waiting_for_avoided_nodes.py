"""A job that finds no node because it keeps off some says so, and names them."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.jobset import build_attempt
from fray.plan.observation import Waiting
from fray.plan.scheduling import NodeSummary, derive_waiting
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AvoidedNode, FrayJobStatus
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.jobset_rules import pod_template

UNTIL = "2026-01-31T13:00:00.000Z"
NODE_7 = AvoidedNode(node="node-7", until=UNTIL, reason="so")
POOL_A = AvoidedNode(node="tpu-0", node_pool="a", until=UNTIL, reason="so")
TOLD = f"avoided since hosts failed there: node-7 until {UNTIL}"
FULL = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient cpu."
NONE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
ALTERNATIVES = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]},
        {"matchExpressions": [{"key": "shared", "operator": "Exists"}]},
    ]
}
OVERLAY = {
    "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ALTERNATIVES}}}
}


def node(name: str, *, ready: bool = True, taints: Any = (), **labels: str) -> NodeSummary:
    return NodeSummary(name, {"kubernetes.io/hostname": name, **labels}, taints, ready)


def explain(
    message: str, *nodes: NodeSummary, avoided: tuple[AvoidedNode, ...] = (NODE_7,), **spec: Any
) -> Waiting:
    """Return why a pod waits that was made to keep off nodes, and of which the scheduler says this."""
    job: FrayJob = with_status(build_frayjob(**spec), FrayJobStatus(avoided_nodes=list(avoided)))
    template = pod_template(build_attempt(job, attempt=3, settings=PlanSettings()).jobset)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod = {"metadata": {"name": "pod"}, "spec": template["spec"], "status": {"conditions": [condition]}}
    told = derive_waiting([pod], nodes=nodes or None, avoided=avoided)
    assert told is not None
    return told


def test_the_only_node_is_avoided() -> None:
    assert explain(NONE, node("node-7")) == Waiting(
        Reason.NODES_AVOIDED, f"1 node matches, but none can be used: 1 avoided: {NONE}; {TOLD}"
    )


def test_the_others_are_full() -> None:
    told = explain(FULL, node("node-7"), node("node-1"), node("node-2"), resources={"cpu": 8})
    assert told == Waiting(
        Reason.NODES_AVOIDED,
        f"2 nodes match, but none has room for 8 cpu (not counted: 1 avoided): {FULL}; {TOLD}",
    )


def test_the_others_are_tainted_or_not_ready() -> None:
    tainted = node("node-1", taints=(("team", "blue", "NoSchedule"),))
    told = explain(NONE, tainted, node("node-7"), node("node-8", ready=False))
    assert told == Waiting(
        Reason.NODES_AVOIDED,
        "3 nodes match, but none can be used: 1 with the taint team=blue:NoSchedule, 1 not ready, 1 avoided; "
        f"{TOLD}",
    )


def test_a_slice_waits_for_its_pool() -> None:
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
    }
    pool = [node(f"tpu-{n}", **labels, **{"cloud.google.com/gke-nodepool": "a"}) for n in range(2)]
    told = explain(NONE, *pool, node("cpu-1"), avoided=(POOL_A,), resources={"tpu": {"type": "v5p-16"}})
    assert told.reason is Reason.NODES_AVOIDED
    assert told.message.startswith("2 nodes match, but none can be used: 2 avoided: ")
    assert told.message.endswith(
        f"; avoided since hosts failed there: tpu-0 and its node pool a until {UNTIL}"
    )


def test_alternatives_of_the_pod_template_are_looked_at_without_the_nodes_it_keeps_off() -> None:
    assert explain(NONE, node("node-7", shared="yes"), podTemplate=OVERLAY).reason is Reason.NODES_AVOIDED
    assert explain(NONE, node("node-7", team="red"), podTemplate=OVERLAY) == Waiting(
        Reason.NO_MATCHING_NODE_POOL, "no node has team In blue or shared Exists; the cluster has 1 node"
    )


@pytest.mark.parametrize(
    ("message", "nodes", "reason"),
    [
        # the avoided one wouldn't do anyway
        (NONE, [node("node-7"), node("node-1", zone="b")], Reason.NO_MATCHING_NODE_POOL),
        (FULL, [node("node-1", zone="a"), node("node-7")], Reason.INSUFFICIENT_CAPACITY),
        # what is wrong with the pod is wrong on every node
        (
            "0/1 nodes are available: pod has unbound claims.",
            [node("node-7", zone="a")],
            Reason.PODS_UNPLACEABLE,
        ),
    ],
)
def test_what_avoided_nodes_are_not_to_blame_for(
    message: str, nodes: list[NodeSummary], reason: Reason
) -> None:
    told = explain(message, *nodes, placement={"nodeSelector": {"zone": "a"}})
    assert told.reason is reason
    assert "avoided" not in told.message


def test_where_nodes_cannot_be_read_the_schedulers_words_decide() -> None:
    assert explain(NONE) == Waiting(Reason.NODES_AVOIDED, f"no node takes the pods: {NONE}; {TOLD}")
    full = "0/1 nodes are available: 1 Insufficient cpu."
    assert explain(full) == Waiting(Reason.UNSCHEDULABLE, f"no node takes the pods: {full}")


def test_a_job_that_keeps_off_nothing_never_waits_for_it() -> None:
    assert explain(NONE, avoided=()).reason is Reason.UNSCHEDULABLE
    assert explain(FULL, node("node-7"), avoided=()).reason is Reason.INSUFFICIENT_CAPACITY
