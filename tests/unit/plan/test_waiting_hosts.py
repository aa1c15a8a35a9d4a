"""Why hosts wait is told by the condition that it is about: Scheduled without a node, Running with one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.lifecycle import decide
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.scheduling import NodeSummary, derive_waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.testing import MOMENT, build_frayjob, build_jobset, build_pod, waiting
from fray.vocabulary import ConditionType, Reason
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

NODE = NodeSummary("node-1", {}, (), ready=True)
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


def pod(
    rank: int, *conditions: dict[str, Any], node: str = "", held: str = "", gates: tuple[str, ...] = ()
) -> Any:
    """Return a pod that waits; `held` is why its container does."""
    gated = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
    state = waiting(held, "why") if held else None
    return build_pod(rank, "Pending", state, node=node, marks=conditions, spec=gated)


@pytest.mark.parametrize("nodes", [None, [], [NODE]], ids=["unknown nodes", "no nodes", "a node with room"])
def test_pods_with_gates_wait_for_their_gates_and_not_for_room(nodes: list[NodeSummary] | None) -> None:
    told = derive_waiting([pod(0, GATED, gates=("kueue.x-k8s.io/topology", "other"))], nodes=nodes)
    assert told is not None
    assert told.reason is Reason.SCHEDULING_GATED
    assert told.message == (
        "the scheduler may not place the pods until their gates are removed: kueue.x-k8s.io/topology, other"
    )


def test_a_pod_that_the_scheduler_could_not_place_is_told_before_one_that_is_held_back() -> None:
    told = derive_waiting([pod(0, GATED, gates=("gate",)), pod(1, UNSCHEDULABLE)])
    assert told is not None
    assert told.reason is Reason.UNSCHEDULABLE


def conditions_of(*pods: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the conditions Scheduled and Running of a job with these pods: status and reason."""
    job = build_frayjob(replicas=len(pods))
    attempt = AttemptStatus(number=1, job_set="train-a1", start_time=MOMENT)
    job = with_status(job, FrayJobStatus(attempts=[attempt]))
    gang = derive_gang_observation(derive_gang(job.spec), build_jobset(), pods, waiting=derive_waiting(pods))
    status = decide(job, gang, now=datetime(2026, 1, 31, 12, 1, tzinfo=UTC), policy=RetryPolicy()).status
    found = {kind: find_condition(status, kind) for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING)}
    return {kind: (told.status, told.reason) for kind, told in found.items() if told is not None}


@pytest.mark.parametrize(
    ("held", "reason"),
    [("ImagePullBackOff", "ImagePullFailed"), ("CreateContainerConfigError", "ContainerConfigInvalid")],
)
def test_trouble_on_a_node_stands_on_running(held: str, reason: str) -> None:
    assert conditions_of(pod(0, node="node-1", held=held)) == {
        "Scheduled": ("True", "AllHostsPlaced"),
        "Running": ("False", reason),
    }
    assert conditions_of(pod(0, node="node-1", held=held), pod(1)) == {
        "Scheduled": ("False", "HostsStarting"),
        "Running": ("False", reason),
    }


def test_what_keeps_hosts_from_a_node_stands_on_both() -> None:
    assert conditions_of(pod(0, GATED, gates=("gate",))) == {
        "Scheduled": ("False", "SchedulingGated"),
        "Running": ("False", "SchedulingGated"),
    }
