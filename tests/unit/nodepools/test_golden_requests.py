"""What GKE is asked for, field by field, and that its own message has each of these fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import container_v1
from google.protobuf import json_format

from fray.nodepools.bodies import build_body, build_policy
from tests.unit.nodepools.golden import Golden, load_golden

GOLDEN = load_golden()

REFERENCE = "https://docs.cloud.google.com/kubernetes-engine/docs/reference/rest/v1/"
POOLS = f"{REFERENCE}projects.locations.clusters.nodePools"
CONFIG = f"{REFERENCE}NodeConfig"
XPK = "AI-Hypercomputer/xpk@367c838 src/xpk/core/"
PROVISIONER = "GoogleCloudPlatform/ai-on-gke tpu-provisioner"
FIELD_SOURCES = {
    "name": f"{POOLS}: at most 40 characters",
    "initialNodeCount": f"{XPK}nodepool.py (--num-nodes), {PROVISIONER}: hosts of the slice",
    "locations": f"{POOLS}: zones of the pool, a slice has one",
    "config.machineType": "the GKE cluster autoscaler's table of machines, XPK system_characteristics.py",
    "config.oauthScopes": f"{CONFIG}: without any, none is added; {PROVISIONER} asks for cloud-platform",
    "config.labels.fray.dev/pool-made-by": "Fray's own",
    "config.diskType": f"GKE's page on Ironwood, {XPK}nodepool.py (--disk-type for tpu7x)",
    "config.serviceAccount": CONFIG,
    "config.spot": f"{CONFIG}, {XPK}capacity.py (--spot)",
    "config.flexStart": f"{CONFIG}, {XPK}capacity.py (--flex-start)",
    "config.accelerators.acceleratorCount": f"{REFERENCE}NodeConfig#AcceleratorConfig",
    "config.accelerators.acceleratorType": f"{REFERENCE}NodeConfig#AcceleratorConfig",
    "config.accelerators.gpuDriverInstallationConfig.gpuDriverVersion": "GKE's page on GPUs",
    "config.reservationAffinity.consumeReservationType": f"{CONFIG}#ReservationAffinity, {XPK}capacity.py",
    "config.reservationAffinity.key": f"{CONFIG}#ReservationAffinity: always this key",
    "config.reservationAffinity.values": f"{CONFIG}#ReservationAffinity; blocks: {XPK}capacity.py",
    "autoscaling.enabled": f"{POOLS}#NodePoolAutoscaling",
    "autoscaling.maxNodeCount": f"{XPK}capacity.py (--max-nodes with flex-start)",
    "autoscaling.totalMaxNodeCount": f"{POOLS}#NodePoolAutoscaling: counts all zones",
    "autoscaling.locationPolicy": f"{XPK}capacity.py (--location-policy=ANY)",
    "management.autoUpgrade": "apple/axlearn cloud/gcp/node_pool.py: release channels refuse false",
    "management.autoRepair": f"{PROVISIONER}: on; {XPK}capacity.py: --no-enable-autorepair with flex-start",
    "maxPodsConstraint.maxPodsPerNode": f"{XPK}nodepool.py, {PROVISIONER}: 15",
    "placementPolicy.type": f"{PROVISIONER}: COMPACT for a slice of several hosts",
    "placementPolicy.tpuTopology": f"{POOLS}#PlacementPolicy, {PROVISIONER}",
    "placementPolicy.policyName": f"{POOLS}#PlacementPolicy, {XPK}nodepool.py: for tpu7x",
    "queuedProvisioning.enabled": f"{POOLS}#QueuedProvisioning, {XPK}capacity.py",
}
COMPUTE = "https://docs.cloud.google.com/compute/docs/reference/rest/v1/resourcePolicies"
POLICY_SOURCES = {
    "name": f"{COMPUTE}; XPK derives it from device and topology",
    "workloadPolicy.type": f"{COMPUTE}; {XPK}nodepool.py (--type=HIGH_THROUGHPUT)",
    "workloadPolicy.acceleratorTopology": f"{COMPUTE}; {XPK}nodepool.py (--accelerator-topology)",
    "workloadPolicy.acceleratorTopologyMode": f"{COMPUTE}; GKE's page on dynamic slices: PROVISION_ONLY",
}


def walk(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field that holds a value."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from walk(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for each in value:
            yield from walk(each, path)
    else:
        yield path


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: each.case)
def test_a_pool_is_asked_for_with_these_fields_and_no_others(golden: Golden) -> None:
    body = build_body(golden.request, made_by="cli")
    body["name"] = re.sub(r"-[0-9a-f]{5}-0$", "-DIGEST-0", body["name"])
    assert body == golden.body


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: each.case)
def test_gkes_message_has_all_fields_of_a_request(golden: Golden) -> None:
    body = build_body(golden.request, made_by="cli")
    message = json_format.ParseDict(body, container_v1.NodePool.pb(container_v1.NodePool()))
    read = json_format.MessageToDict(message)
    # Zeros and falses are what a message says by leaving them out.
    assert set(walk(body)) - set(walk(read)) <= {"initialNodeCount", "management.autoRepair"}


@pytest.mark.parametrize("golden", [each for each in GOLDEN if each.policy], ids=lambda each: each.case)
def test_a_policy_is_asked_for_with_these_fields_and_no_others(golden: Golden) -> None:
    policy = golden.request.policy
    assert policy is not None
    assert build_policy(policy) == golden.policy
    assert golden.body["placementPolicy"] == {"policyName": policy.name}


def test_there_are_twelve_and_each_field_has_a_source() -> None:
    assert len(GOLDEN) == 12
    fields = {path for golden in GOLDEN for path in walk(golden.body)}
    assert fields == set(FIELD_SOURCES)
    assert {path for golden in GOLDEN for path in walk(golden.policy or {})} - {""} == set(POLICY_SOURCES)
