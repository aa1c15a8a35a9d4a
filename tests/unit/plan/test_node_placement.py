"""Which nodes a job's pods ask for, avoid and tolerate (GKE's labels and taints)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.jobset import build_attempt
from fray.plan.placement import NodeDemand, NodePlacement, build_placement, derive_demand
from fray.plan.scheduling import build_node_summary, derive_waiting
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import Reason

TPU = {"tpu": {"type": "v5p-16"}}
GPU = {"gpu": {"type": "nvidia-l4"}}
SPOT = "cloud.google.com/gke-spot"
SPOT_TOLERATION = {"key": SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def place(
    placement: dict[str, Any], resources: dict[str, Any] | None = None, replicas: int = 1
) -> NodePlacement:
    spec = build_frayjob(replicas=replicas, resources=resources or {}, placement=placement).spec
    return build_placement(spec.placement, derive_gang(spec))


def keys(found: NodePlacement) -> set[str]:
    return {toleration.get("key", "") for toleration in found.tolerations}


def test_by_default_spot_nodes_are_tolerated_and_not_asked_for() -> None:
    found = place({})
    assert found.tolerations == [SPOT_TOLERATION]
    assert found.selector == {}
    assert found.expressions == []
    assert found.to_pod_spec() == {"tolerations": [SPOT_TOLERATION]}


def test_a_job_that_must_not_be_preempted_keeps_off_spot_nodes_twice_over() -> None:
    found = place({"preemptible": False})
    assert found.tolerations == [], "not even by the taint"
    assert found.expressions == [{"key": SPOT, "operator": "NotIn", "values": ["true"]}]


def test_spot_required_selects_and_tolerates() -> None:
    found = place({"spot": "Required"}, GPU)
    assert found.selector[SPOT] == "true"
    assert SPOT_TOLERATION in found.tolerations


@pytest.mark.parametrize(
    ("resources", "tolerated"), [(TPU, "google.com/tpu"), (GPU, "nvidia.com/gpu"), ({}, None)]
)
def test_the_accelerators_own_taint_is_tolerated(resources: dict[str, Any], tolerated: str | None) -> None:
    own = [t for t in place({}, resources).tolerations if t["key"] != SPOT]
    expected = [{"key": tolerated, "operator": "Exists", "effect": "NoSchedule"}] if tolerated else []
    assert own == expected


@pytest.mark.parametrize(
    ("gpu", "arm64"), [("nvidia-gb200", True), ("nvidia-gb300", True), ("nvidia-b200", False)]
)
def test_arm64_nodes_are_tolerated_by_jobs_for_their_gpus_alone(gpu: str, arm64: bool) -> None:
    found = place({}, {"gpu": {"type": gpu, "count": 4 if arm64 else 8}})
    assert ("kubernetes.io/arch" in keys(found)) == arm64


@pytest.mark.parametrize(
    ("reservation", "labels"),
    [
        ("block", {"reservation-name": "block", "reservation-affinity": "specific"}),
        (
            "projects/acme/reservations/block",
            {"reservation-name": "block", "reservation-project": "acme", "reservation-affinity": "specific"},
        ),
    ],
)
def test_reservations(reservation: str, labels: dict[str, str]) -> None:
    expected = {f"cloud.google.com/{key}": value for key, value in labels.items()}
    assert place({"reservation": reservation}).selector == expected


def test_a_compute_class_decides_what_a_selector_would_contradict() -> None:
    found = place({"computeClass": "cheap", "spot": "Required", "reservation": "block"}, GPU)
    assert found.selector == {"cloud.google.com/compute-class": "cheap"}
    assert {"nvidia.com/gpu", SPOT, "cloud.google.com/compute-class"} == keys(found)
    assert len(found.notices) == 3
    assert all("compute class cheap" in notice for notice in found.notices)


def test_a_compute_class_keeps_a_tpus_label_and_topology() -> None:
    found = place({"computeClass": "any"}, TPU)
    assert found.selector == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
        "cloud.google.com/compute-class": "any",
    }
    assert found.notices == []


@pytest.mark.parametrize(("way", "queued"), [("Required", False), ("Queued", True)])
def test_flex_start(way: str, *, queued: bool) -> None:
    found = place({"flexStart": way}, TPU)
    assert found.selector["cloud.google.com/gke-flex-start"] == "true"
    assert "cloud.google.com/gke-flex-start" in keys(found)
    assert ("cloud.google.com/gke-queued" in keys(found)) is queued


@pytest.mark.parametrize(("queue", "told"), [({}, True), ({"queue": {"name": "tpus"}}, False)])
def test_flex_start_by_kueue_needs_a_queue(queue: dict[str, Any], *, told: bool) -> None:
    job = build_frayjob(resources=TPU, placement={"flexStart": "Queued"}, **queue)
    notices = build_attempt(job, attempt=1, settings=PlanSettings()).notices
    assert any("only Kueue asks for such nodes" in notice for notice in notices) is told


def test_regions_and_zones_are_alternatives_all_of_which_hold_with_the_rest() -> None:
    found = place({"regions": ["r1", "r2"], "zones": ["z1"], "preemptible": False})
    affinity = found.to_pod_spec()["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (term,) = affinity["nodeSelectorTerms"]  # terms are alternatives, so there must be one
    assert term["matchExpressions"] == [
        {"key": SPOT, "operator": "NotIn", "values": ["true"]},
        {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["r1", "r2"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
    ]


@pytest.mark.parametrize(
    ("resources", "replicas", "noticed"),
    [
        (TPU, 1, False),
        (TPU, 2, True),
        ({"tpu": {"type": "v5p-8"}}, 2, False),
        (GPU, 2, False),
        ({}, 2, False),
    ],
)
def test_one_node_pool_holds_one_multi_host_slice(
    resources: dict[str, Any], replicas: int, noticed: bool
) -> None:
    found = place({"nodePool": "pool"}, resources, replicas)
    assert found.selector["cloud.google.com/gke-nodepool"] == "pool"
    assert bool(found.notices) == noticed


def test_a_users_selector_wins_and_says_so_unless_it_says_the_same() -> None:
    found = place(
        {
            "nodeSelector": {
                "cloud.google.com/gke-tpu-topology": "other",
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
                "team": "x",
            }
        },
        TPU,
    )
    assert found.selector["cloud.google.com/gke-tpu-topology"] == "other"
    assert found.notices == [
        "placement.nodeSelector sets cloud.google.com/gke-tpu-topology to other instead of 2x2x2"
    ]
    because = {fact.subject: fact.because for fact in found.facts}
    assert because["node selector cloud.google.com/gke-tpu-topology"] == "placement.nodeSelector"
    assert because["node selector cloud.google.com/gke-tpu-accelerator"] != "placement.nodeSelector"


def test_tolerations_are_added_once() -> None:
    mine = [{"operator": "Exists"}, {"operator": "Exists"}, SPOT_TOLERATION]
    assert place({"tolerations": mine}).tolerations == [SPOT_TOLERATION, {"operator": "Exists"}]


@pytest.mark.parametrize("count", [8, 4])
def test_the_two_machines_of_topology_2x4_are_told_apart(count: int) -> None:
    found = place({}, {"tpu": {"type": "v5litepod-8", "chipsPerHost": count}})
    assert found.selector["cloud.google.com/gke-accelerator-count"] == str(count)


SLICES = {"replicas": 2, "resources": TPU}
V5P_16 = NodeDemand(2, 2, own_pools=True, accelerator="tpu-v5p-slice", chips=4, topology="2x2x2")


@pytest.mark.parametrize(
    ("spec", "expected", "told"),
    [
        (SLICES, V5P_16, "2 node pools of 2 nodes with tpu-v5p-slice 2x2x2"),
        (
            SLICES | {"placement": {"spot": "Required"}},
            replace(V5P_16, spot="Required"),
            "2 node pools of 2 nodes with tpu-v5p-slice 2x2x2, spot only",
        ),
        (
            SLICES | {"placement": {"preemptible": False, "zones": ["us-east5-a", "us-east5-b"]}},
            replace(V5P_16, spot="Refused", zones=("us-east5-a", "us-east5-b")),
            "2 node pools of 2 nodes with tpu-v5p-slice 2x2x2, not spot, in us-east5-a or us-east5-b",
        ),
        (
            SLICES
            | {"placement": {"reservation": "mine", "regions": ["us-east5"]}, "queue": {"name": "tpus"}},
            replace(V5P_16, reservation="mine", regions=("us-east5",), queue="tpus"),
            "2 node pools of 2 nodes with tpu-v5p-slice 2x2x2, in us-east5, of reservation mine, "
            "once queue tpus admits it",
        ),
        (
            {"replicas": 3, "resources": {"tpu": {"type": "v6e-1"}}},
            NodeDemand(3, 1, accelerator="tpu-v6e-slice", chips=1, topology="1x1"),
            "3 nodes with tpu-v6e-slice 1x1",
        ),
        (
            {"replicas": 2, "resources": GPU},
            NodeDemand(1, 2, accelerator="nvidia-l4", chips=1),
            "room for 2 pods with 1 nvidia-l4",
        ),
        ({}, NodeDemand(1, 1), "room for 1 pod"),
    ],
)
def test_the_demand_says_which_nodes_an_attempt_needs_and_explain_prints_it(
    spec: dict[str, Any], expected: NodeDemand, told: str
) -> None:
    job = build_frayjob(**spec)
    assert derive_demand(job) == expected
    plan = build_attempt(job, attempt=1, settings=PlanSettings())
    assert plan.demand == expected
    assert [fact.value for fact in plan.facts if fact.subject == "nodes"] == [told]


def test_a_node_pool_that_is_missing_is_named_by_the_demand() -> None:
    job = build_frayjob(**SLICES)
    jobset = build_attempt(job, attempt=1, settings=PlanSettings()).jobset
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    refused = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    pod = {"metadata": {"name": "pod"}, "spec": spec, "status": {"conditions": [refused]}}
    nodes = [build_node_summary({"metadata": {"name": "cpu-1"}})]
    waiting = derive_waiting([pod], nodes=nodes, demand=derive_demand(job))
    assert waiting is not None
    assert waiting.reason is Reason.NO_MATCHING_NODE_POOL
    assert "; the job needs 2 node pools of 2 nodes with tpu-v5p-slice 2x2x2; " in waiting.message
