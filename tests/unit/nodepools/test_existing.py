"""Which existing pools can hold a job, read from GKE's bodies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fray.errors import InvalidRequestError
from fray.nodepools.bodies import build_body
from fray.nodepools.existing import (
    can_hold,
    derive_provisioning,
    read_cluster,
    read_operation,
    read_pool,
)
from fray.nodepools.requests import PoolChoices
from tests.unit.nodepools.golden import Golden, build_request, load_golden

GOLDEN = load_golden()
SLICE = GOLDEN[0]


def build_existing(golden: Golden, **changes: Any) -> dict[str, Any]:
    body = build_body(golden.request, made_by="cli") | {"status": "RUNNING"}
    config = body["config"] | changes.pop("config", {})
    return body | changes | {"config": config}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: each.case)
def test_a_pool_that_was_asked_for_is_found_again(golden: Golden) -> None:
    # GKE names the zones of a pool that was asked for without any.
    pool = read_pool(build_existing(golden, locations=list(golden.request.zones) or ["us-east5-a"]))
    assert can_hold(pool, golden.request, golden.demand)
    assert pool.most_nodes == golden.request.most_nodes
    assert pool.chips == golden.request.chips
    others = [each for each in GOLDEN if each.request.shape != golden.request.shape]
    held = [each.case for each in others if can_hold(pool, each.request, each.demand)]
    assert held == []


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "ERROR"},
        {"status": "STOPPING"},
        {"locations": ["us-east5-b"]},
        {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"}},
        {"placementPolicy": {}},
        {"queuedProvisioning": {"enabled": True}},
        {"config": {"machineType": "ct4p-hightpu-4t"}},
        {"config": {"flexStart": True}},
        {"config": {"taints": [{"key": "team", "value": "x", "effect": "NO_SCHEDULE"}]}},
    ],
)
def test_a_pool_that_differs_does_not_hold_it(changes: dict[str, Any]) -> None:
    assert not can_hold(read_pool(build_existing(SLICE, **changes)), SLICE.request, SLICE.demand)


def test_machines_that_a_job_does_not_tell_apart_serve_it_alike() -> None:
    golden = next(each for each in GOLDEN if each.case == "Ironwood by workload policy")
    ultranet = read_pool(build_existing(golden, config={"machineType": "tpu7x-ultranet-4t"}))
    assert can_hold(ultranet, golden.request, golden.demand)
    chosen = build_request(golden.spec, replace(golden.choices, machine_type="tpu7x-ultranet-4t"))
    assert chosen.machine_type == "tpu7x-ultranet-4t"
    with pytest.raises(InvalidRequestError, match="which hasn't 4 tpu7x"):
        build_request(golden.spec, replace(golden.choices, machine_type="ct5p-hightpu-4t"))


def test_taints_that_jobs_tolerate_are_no_hindrance() -> None:
    taints = [{"key": key} for key in ("google.com/tpu", "cloud.google.com/gke-spot")]
    pool = read_pool(build_existing(SLICE, config={"taints": taints, "spot": True}))
    assert can_hold(pool, SLICE.request, SLICE.demand)


def test_spot_pools_hold_jobs_that_allow_them_only() -> None:
    spot = read_pool(build_existing(SLICE, config={"spot": True}))
    normal = read_pool(build_existing(SLICE))
    for placement, holds in (({"preemptible": False}, (False, True)), ({"spot": "Required"}, (True, False))):
        golden = Golden("x", {**SLICE.spec, "placement": placement}, PoolChoices(zones=("us-east5-a",)), {})
        assert tuple(can_hold(pool, golden.request, golden.demand) for pool in (spot, normal)) == holds


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({}, ""),
        ({"error": {"code": 8, "message": "no room"}}, "no room"),
        ({"statusMessage": "no room"}, "no room"),
        ({"error": {"code": 8}}, "code 8"),
    ],
)
def test_an_operation_failed_if_any_field_says_so(more: dict[str, Any], error: str) -> None:
    target = "https://container.googleapis.com/v1/projects/123/zones/us-east5-a/clusters/c/nodePools/v5p"
    body = {"name": "o", "operationType": "CREATE_NODE_POOL", "status": "DONE", "targetLink": target}
    operation = read_operation(body | {"endTime": "2026-11-23T16:00:00.123456789Z"} | more)
    assert (operation.pool, operation.is_done, operation.error) == ("v5p", True, error)
    assert operation.ended is not None
    assert read_operation(body | {"targetLink": target.rpartition("/nodePools/")[0]}).pool is None


@pytest.mark.parametrize("time", ["soon", "", "2026-11-23T16:00:00", 17, None])
def test_an_operation_whose_end_is_no_time_has_ended_nobody_knows_when(time: object) -> None:
    operation = read_operation({"name": "o", "status": "DONE", "endTime": time})
    assert operation.is_done
    assert operation.ended is None


def test_provisioning_by_gke_is_told_with_what_it_lacks() -> None:
    body = {
        "locations": ["us-east5-a"],
        "autoscaling": {
            "enableNodeAutoprovisioning": True,
            "resourceLimits": [{"resourceType": "tpu-v5p-slice", "maximum": "16"}],
        },
    }
    cluster = read_cluster(body)
    two = derive_provisioning(cluster, SLICE.demand)
    three = derive_provisioning(cluster, replace(SLICE.demand, slices=3))
    assert two is not None
    assert three is not None
    assert two.limitation == ""
    assert "is 16, and the job needs 24" in three.limitation
    assert derive_provisioning(read_cluster({}), SLICE.demand) is None
