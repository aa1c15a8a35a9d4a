"""The fake GKE takes what Fray asks for, and refuses what GKE refuses, in words that Fray understands."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import container_v1
from google.protobuf import json_format

from fray.nodepools.answers import explain_answer
from fray.nodepools.bodies import build_body, build_policy
from tests.gke.rules import RULES
from tests.gke.server import FakeGke
from tests.unit.nodepools.golden import Golden, load_golden

GOLDEN = {golden.case: golden for golden in load_golden()}
SLICE = "slice of several hosts"
FLEX = "flex-start slice"


def build_gke(golden: Golden, **more: Any) -> FakeGke:
    """Return a cluster where a golden request should find all that it names."""
    request = golden.request
    zones = request.zones or ("us-east5-a", "us-east5-b")
    policy = request.policy
    policies = {policy.name: build_policy(policy)["workloadPolicy"]} if policy else {}
    reservations = {request.reservation: 100} if request.reservation else {}
    given = {"location": "-".join(zones[0].split("-")[:2]), "zones": zones, "policies": policies}
    return FakeGke(**{**given, "reservations": reservations, **more})


def create(gke: FakeGke, body: dict[str, Any]) -> container_v1.Operation:
    pool = container_v1.NodePool.from_json(
        json_format.MessageToJson(
            json_format.ParseDict(body, container_v1.NodePool.pb(container_v1.NodePool()))
        )
    )
    return gke.client().create_node_pool(parent=gke.path, node_pool=pool)


@pytest.mark.parametrize("golden", GOLDEN.values(), ids=lambda each: each.case)
def test_every_golden_request_is_taken_and_becomes_a_running_pool(golden: Golden) -> None:
    with build_gke(golden) as gke:
        operation = create(gke, build_body(golden.request, made_by="cli"))
        assert operation.operation_type.name == "CREATE_NODE_POOL"
        gke.clock.sleep(gke.seconds)
        (pool,) = gke.client().list_node_pools(parent=gke.path).node_pools
        assert pool.status == container_v1.NodePool.Status.RUNNING


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for key in parents:
            body = body.setdefault(key, {})
        body[last] = value

    return change


SPECIFIC = {
    "consumeReservationType": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
}
BREAKS: tuple[tuple[str, str, Callable[[dict[str, Any]], None], dict[str, Any], str], ...] = (
    ("name", SLICE, _set("name", "x" * 41), {}, "Refused"),
    ("Autopilot", SLICE, _set("name", "a"), {"autopilot": True}, "AutopilotCluster"),
    ("release channel", SLICE, _set("management.autoUpgrade", False), {}, "AutoUpgradeRequired"),
    ("scopes", SLICE, _set("config.oauthScopes", []), {}, "Refused"),
    ("location", SLICE, _set("locations", ["europe-west4-a"]), {}, "Refused"),
    (
        "machine type",
        SLICE,
        _set("name", "a"),
        {"missing_machines": {("us-east5-a", "ct5p-hightpu-4t")}},
        "MachineTypeUnavailable",
    ),
    (
        "TPUs by machine type",
        SLICE,
        _set("config.accelerators", [{"acceleratorType": "tpu"}]),
        {},
        "Refused",
    ),
    (
        "topology or policy",
        SLICE,
        _set("placementPolicy.policyName", "cube"),
        {"policies": {"cube": {"acceleratorTopology": "2x2x2"}}},
        "TopologyRefused",
    ),
    ("topology", SLICE, _set("placementPolicy.tpuTopology", "2x2x3"), {}, "TopologyRefused"),
    ("topology", SLICE, _set("initialNodeCount", 3), {}, "TopologyRefused"),
    ("compact", SLICE, _set("placementPolicy.type", "TYPE_UNSPECIFIED"), {}, "TopologyRefused"),
    (
        "tpu7x by policy",
        "Ironwood by workload policy",
        _set("placementPolicy", {"type": "COMPACT", "tpuTopology": "2x2x2"}),
        {},
        "TopologyRefused",
    ),
    ("policy exists", "Ironwood by workload policy", _set("name", "a"), {"policies": {}}, "PolicyRefused"),
    ("flex-start", FLEX, _set("management.autoRepair", True), {}, "Refused"),
    ("flex-start", FLEX, _set("config.reservationAffinity", {}), {}, "Refused"),
    ("one way to buy", "specific reservation", _set("config.spot", True), {}, "Refused"),
    ("queued", SLICE, _set("queuedProvisioning", {"enabled": True}), {}, "Refused"),
    ("reservation", "specific reservation", _set("name", "a"), {"reservations": {}}, "ReservationNotFound"),
    ("reservation", "specific reservation", _set("config.reservationAffinity", SPECIFIC), {}, "Refused"),
    ("scaling", "GPUs with drivers", _set("autoscaling.maxNodeCount", 3), {}, "Refused"),
)


@pytest.mark.parametrize(("rule", "case", "change", "cluster", "reason"), BREAKS)
def test_each_rule_refuses_a_golden_request_that_breaks_it(
    rule: str, case: str, change: Callable[[dict[str, Any]], None], cluster: dict[str, Any], reason: str
) -> None:
    golden = GOLDEN[case]
    body = copy.deepcopy(build_body(golden.request, made_by="cli"))
    change(body)
    with build_gke(golden, **cluster) as gke, pytest.raises(exceptions.GoogleAPICallError) as refused:
        create(gke, body)
    assert gke.creates == []
    code = refused.value.grpc_status_code
    assert explain_answer(refused.value.message, code=code.name).reason == reason


def test_there_is_a_broken_request_for_every_rule() -> None:
    assert {rule for rule, *_ in BREAKS} | {"name taken"} == {rule.name for rule in RULES}


def test_a_second_pool_of_one_name_is_refused_and_two_of_two_names_are_made_at_once() -> None:
    golden = GOLDEN[SLICE]
    with build_gke(golden) as gke:
        body = build_body(golden.request, made_by="cli")
        create(gke, body)
        with pytest.raises(exceptions.AlreadyExists):
            create(gke, body)
        create(gke, body | {"name": "another"})
        assert gke.creates == [golden.request.name, "another"]


def test_an_operation_of_the_cluster_is_in_the_way_of_pools_and_one_of_a_pool_only_of_that() -> None:
    golden = GOLDEN[SLICE]
    with build_gke(golden) as gke:
        body = build_body(golden.request, made_by="cli")
        upgrade = gke.begin_upgrade(seconds=100)
        with pytest.raises(exceptions.FailedPrecondition, match=upgrade):
            create(gke, body)
        gke.clock.sleep(100)
        create(gke, body)
        with pytest.raises(exceptions.FailedPrecondition, match="incompatible operation"):
            gke.client().delete_node_pool(name=f"{gke.path}/nodePools/{body['name']}")


def test_quota_is_refused_at_once_and_a_reservation_needs_none() -> None:
    body = build_body(GOLDEN[SLICE].request, made_by="cli")
    denied = pytest.raises(exceptions.PermissionDenied, match=r"is short '1\.0'")
    with build_gke(GOLDEN[SLICE], quota={"tpu-v5p-slice": 7}) as gke, denied:
        create(gke, body)
    reserved = GOLDEN["specific reservation"]
    with build_gke(reserved, quota={"tpu-v4-podslice": 0}) as gke:
        create(gke, build_body(reserved.request, made_by="cli"))


def test_a_stock_out_ends_the_operation_with_an_error_and_leaves_the_pool_in_error() -> None:
    golden = GOLDEN[SLICE]
    with build_gke(golden, stockouts={("us-east5-a", "ct5p-hightpu-4t")}) as gke:
        operation = create(gke, build_body(golden.request, made_by="cli"))
        gke.clock.sleep(gke.seconds)
        client = gke.client()
        ended = client.get_operation(name=f"projects/p/locations/us-east5/operations/{operation.name}")
        assert explain_answer(ended.error.message).reason == "StockOut"
        (pool,) = client.list_node_pools(parent=gke.path).node_pools
        assert pool.status == container_v1.NodePool.Status.ERROR
        assert explain_answer(pool.status_message).reason == "StockOut"
