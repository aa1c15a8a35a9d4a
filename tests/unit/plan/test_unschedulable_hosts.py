"""Why the scheduler places no host: its own words decide, and only nodes that could be used are counted."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.observation import Waiting
from fray.plan.scheduling import NodeSummary, build_node_summary, derive_waiting
from fray.vocabulary import Reason

TEAM = {"key": "team", "value": "blue", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
FULL = "0/9 nodes are available: 2 Insufficient cpu, 7 node(s) had untolerated taint {team: blue}."


def node(
    name: str,
    *taints: dict[str, str],
    ready: bool = True,
    cordoned: bool = False,
    allocatable: dict[str, str] | None = None,
) -> NodeSummary:
    """Return what is known of a node, as the API server tells of it."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    held = [*taints, CORDON] if cordoned else list(taints)
    spec = {"taints": held, **({"unschedulable": True} if cordoned else {})}
    return build_node_summary(
        {
            "metadata": {"name": name},
            "spec": spec,
            "status": {"conditions": conditions, "allocatable": allocatable},
        }
    )


def explain(
    message: str,
    *nodes: NodeSummary,
    tolerations: tuple[dict[str, str], ...] = (),
    requests: dict[str, str] | None = None,
) -> Waiting:
    """Return why a pod waits of which the scheduler says this."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "8"}}}
    pod: dict[str, Any] = {
        "metadata": {"name": "pod"},
        "spec": {"containers": [container], "tolerations": list(tolerations)},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    told = derive_waiting([pod], nodes=nodes)
    assert told is not None
    return told


def test_room_is_missing_on_nodes_that_could_be_used_and_others_are_not_counted_with_them() -> None:
    told = explain(
        FULL,
        node("free-1"),
        node("free-2"),
        node("taken-1", TEAM),
        node("taken-2", TEAM),
        node("taken-3", GPU),
        node("broken", ready=False),
        node("closed", cordoned=True),
    )
    assert told == Waiting(
        Reason.INSUFFICIENT_CAPACITY,
        "2 nodes match, but none has room for 8 cpu (not counted: 2 with the taint team=blue:NoSchedule, "
        f"1 with the taint nvidia.com/gpu=present:NoSchedule, 1 not ready, 1 cordoned): {FULL}",
    )


def test_a_node_whose_taint_is_tolerated_counts() -> None:
    told = explain(FULL, node("a"), node("b", TEAM), tolerations=({"key": "team", "operator": "Exists"},))
    assert told.message == f"2 nodes match, but none has room for 8 cpu: {FULL}"


def test_a_cordon_that_is_tolerated_is_none() -> None:
    told = explain(FULL, node("a", cordoned=True), tolerations=({"operator": "Exists"},))
    assert told.message == f"1 node matches, but none has room for 8 cpu: {FULL}"


SMALL = {"cpu": "3920m", "memory": "60Gi", "pods": "110"}
LARGE = {"cpu": "7910m", "memory": "28Gi"}


@pytest.mark.parametrize(
    ("requests", "sizes", "told"),
    [
        ({"cpu": "8"}, [SMALL, LARGE], ", nor has when it is empty (at most 7910m cpu)"),
        ({"cpu": "8"}, [SMALL, {"cpu": "8"}], ""),
        ({"cpu": "8"}, [SMALL, None], ""),
        ({"cpu": "7", "memory": "50Gi"}, [SMALL, LARGE], ", even when empty"),
        (
            {"cpu": "1", "google.com/tpu": "4"},
            [SMALL],
            ", nor has when it is empty (at most 0 google.com/tpu)",
        ),
        ({"cpu": "1", "example.com/fpga": "1"}, [SMALL], ""),
    ],
    ids=[
        "too small",
        "one is large enough",
        "one isn't known",
        "each lacks another",
        "no chips",
        "others' kinds",
    ],
)
def test_nodes_that_are_too_small_are_told_from_full_ones(
    requests: dict[str, str], sizes: list[dict[str, str] | None], told: str
) -> None:
    nodes = [node(f"n-{index}", allocatable=size) for index, size in enumerate(sizes)]
    # One that can't be used doesn't count, however large it is.
    waiting = explain(FULL, *nodes, node("huge", TEAM, allocatable={"cpu": "64"}), requests=requests)
    text = ", ".join(f"{amount} {key}" for key, amount in requests.items())
    assert waiting.reason is Reason.INSUFFICIENT_CAPACITY
    assert f"but none has room for {text}{told} (not counted: 1 with the taint" in waiting.message


@pytest.mark.parametrize("words", ["Insufficient google.com/tpu.", "Too many pods."])
def test_a_full_node_has_no_room(words: str) -> None:
    assert explain(f"0/1 nodes are available: 1 {words}", node("a")).reason is Reason.INSUFFICIENT_CAPACITY


@pytest.mark.parametrize(
    "words",
    [
        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
        "0/1 nodes are available: 1 node(s) had volume node affinity conflict. "
        "preemption: 0/1 nodes are available: 1 Insufficient cpu.",
    ],
)
def test_room_is_missing_only_where_the_scheduler_says_so(words: str) -> None:
    assert explain(words, node("a")) == Waiting(Reason.UNSCHEDULABLE, f"no node takes the pods: {words}")


def test_what_is_wrong_with_the_pod_itself_comes_before_what_is_wrong_with_nodes() -> None:
    words = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    told = Waiting(Reason.PODS_UNPLACEABLE, f"the pods can't be placed: {words}")
    assert explain(words, node("a", TEAM)) == told


@pytest.mark.parametrize(
    ("nodes", "reason", "told"),
    [
        (
            [node("a", TEAM)],
            Reason.UNTOLERATED_TAINT,
            "1 node matches, but the job doesn't tolerate its taint team=blue:NoSchedule",
        ),
        (
            [node("a", TEAM), node("b", TEAM)],
            Reason.UNTOLERATED_TAINT,
            "2 nodes match, but the job doesn't tolerate their taint team=blue:NoSchedule",
        ),
        (
            [node("a", TEAM), node("b", GPU), node("c", ready=False)],
            Reason.UNTOLERATED_TAINT,
            "3 nodes match, but none can be used: 1 with the taint nvidia.com/gpu=present:NoSchedule, "
            "1 with the taint team=blue:NoSchedule, 1 not ready",
        ),
        (
            [node("a", cordoned=True), node("b", TEAM, ready=False)],
            Reason.INSUFFICIENT_CAPACITY,
            f"2 nodes match, but none can be used: 1 not ready, 1 cordoned: {FULL}",
        ),
    ],
)
def test_nodes_that_cannot_be_used_are_told_by_what_is_in_the_way(
    nodes: list[NodeSummary], reason: Reason, told: str
) -> None:
    assert explain(FULL, *nodes) == Waiting(reason, told)
