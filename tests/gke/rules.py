"""What GKE refuses in a request for a node pool: each rule with its source, and what it says.

Rules read the request's message as it came over the wire, and the fake cluster's state. What they say is as
in `refusals`, where that has it, with the names of this request in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.cloud import container_v1

from fray.accelerators import generations

if TYPE_CHECKING:
    from tests.gke.server import FakeGke

Pool = container_v1.NodePool
ReservationType = container_v1.ReservationAffinity.Type
Answer = tuple[str, str] | None
"""gRPC's code and the words; None where nothing is wrong."""
MACHINES = {
    name: machine for each in generations() for machine in each.machines for name in machine.machine_types
}
NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Rule:
    name: str
    source: str
    judge: Callable[[Pool, FakeGke], Answer]


def _invalid(text: str) -> Answer:
    return "INVALID_ARGUMENT", text


def _name(pool: Pool, gke: FakeGke) -> Answer:
    return None if NAME.fullmatch(pool.name) else _invalid(f"Invalid node pool name {pool.name!r}.")


def _taken(pool: Pool, gke: FakeGke) -> Answer:
    if pool.name in gke.pools:
        return "ALREADY_EXISTS", f"Already exists: {gke.path}/nodePools/{pool.name}."
    return None


def _autopilot(pool: Pool, gke: FakeGke) -> Answer:
    return _invalid("Autopilot clusters do not support mutating node pools.") if gke.autopilot else None


def _auto_upgrade(pool: Pool, gke: FakeGke) -> Answer:
    # On the wire a message without the field says false: only one without `management` leaves it to GKE.
    if gke.release_channel and "management" in pool and not pool.management.auto_upgrade:
        return _invalid(f"Auto_upgrade must be true when release_channel {gke.release_channel} is set.")
    return None


def _scopes(pool: Pool, gke: FakeGke) -> Answer:
    return (
        None if pool.config.oauth_scopes else _invalid("The nodes could not pull any image: no OAuth scopes.")
    )


def _location(pool: Pool, gke: FakeGke) -> Answer:
    wrong = [zone for zone in pool.locations if not zone.startswith(gke.region)]
    return _invalid(f"Location {wrong[0]!r} is not in region {gke.region}.") if wrong else None


def _machine(pool: Pool, gke: FakeGke) -> Answer:
    for zone in pool.locations or gke.zones:
        if (zone, pool.config.machine_type) in gke.missing_machines:
            return _invalid(
                f"Machine type with name '{pool.config.machine_type}' does not exist in zone '{zone}'."
            )
    return None


def _tpu_accelerators(pool: Pool, gke: FakeGke) -> Answer:
    if pool.config.machine_type in MACHINES and pool.config.accelerators:
        return _invalid(f"accelerators cannot be set with machine type {pool.config.machine_type}.")
    return None


def _exclusive(pool: Pool, gke: FakeGke) -> Answer:
    placement = pool.placement_policy
    if placement.tpu_topology and placement.policy_name:
        return _invalid("tpu_topology and policy_name in placement_policy are mutually exclusive.")
    return None


def _topology(pool: Pool, gke: FakeGke) -> Answer:
    placement = pool.placement_policy
    topology = placement.tpu_topology or gke.policies.get(placement.policy_name, {}).get(
        "acceleratorTopology", ""
    )
    if not topology:
        return None
    machine = MACHINES.get(pool.config.machine_type)
    legal = machine is not None and topology in set(machine.topologies)
    if machine is None or not legal:
        return _invalid(
            f"TPU topology {topology} is not supported by machine type {pool.config.machine_type}."
        )
    hosts = math.prod(map(int, topology.split("x"))) // machine.chips
    asked = pool.autoscaling.max_node_count if pool.config.flex_start else pool.initial_node_count
    if asked != hosts:
        return _invalid(f"TPU topology {topology} is not valid for {asked} nodes: it needs {hosts}.")
    if len(pool.locations) != 1 and len(gke.zones) != 1:
        return _invalid(f"TPU topology {topology} is not supported in more than one zone.")
    return None


def _compact(pool: Pool, gke: FakeGke) -> Answer:
    placement = pool.placement_policy
    if placement.tpu_topology and placement.type_ != Pool.PlacementPolicy.Type.COMPACT:
        return _invalid("TPU topology is not valid without placement policy type COMPACT.")
    return None


def _by_policy(pool: Pool, gke: FakeGke) -> Answer:
    if pool.config.machine_type.startswith("tpu7x-") and pool.placement_policy.tpu_topology:
        return _invalid(
            f"TPU topology is not supported for {pool.config.machine_type}: use a workload policy."
        )
    return None


def _policy_exists(pool: Pool, gke: FakeGke) -> Answer:
    name = pool.placement_policy.policy_name
    if name and name not in gke.policies:
        path = f"projects/{gke.project}/regions/{gke.region}/resourcePolicies/{name}"
        return _invalid(f"Resource policy {path} was not found.")
    return None


def _flex_start(pool: Pool, gke: FakeGke) -> Answer:
    if not pool.config.flex_start:
        return None
    if pool.initial_node_count or not pool.autoscaling.enabled:
        return _invalid("Flex-start node pools must have autoscaling enabled and no initial nodes.")
    if pool.management.auto_repair:
        return _invalid("Flex-start node pools must have auto-repair disabled.")
    if pool.config.reservation_affinity.consume_reservation_type != ReservationType.NO_RESERVATION:
        return _invalid(
            "Flex-start node pools must not consume reservations: reservation affinity must be none."
        )
    return None


def _one_way(pool: Pool, gke: FakeGke) -> Answer:
    specific = (
        pool.config.reservation_affinity.consume_reservation_type == ReservationType.SPECIFIC_RESERVATION
    )
    if sum([pool.config.spot, pool.config.flex_start, specific]) > 1:
        return _invalid("Spot, flex-start and reservation affinity cannot be combined.")
    return None


def _queued(pool: Pool, gke: FakeGke) -> Answer:
    if pool.queued_provisioning.enabled and (pool.initial_node_count or not pool.autoscaling.enabled):
        return _invalid("Queued provisioning requires autoscaling and no initial nodes.")
    return None


def _reservation(pool: Pool, gke: FakeGke) -> Answer:
    affinity = pool.config.reservation_affinity
    if affinity.consume_reservation_type != ReservationType.SPECIFIC_RESERVATION:
        return None
    if affinity.key != "compute.googleapis.com/reservation-name" or len(affinity.values) != 1:
        return _invalid("A specific reservation requires the key compute.googleapis.com/reservation-name.")
    name = affinity.values[0]
    if name not in gke.reservations:
        return _invalid(f"The reservation {name} could not be found.")
    return None


def _scaling(pool: Pool, gke: FakeGke) -> Answer:
    scaling = pool.autoscaling
    if not scaling.enabled:
        return None
    if scaling.max_node_count and scaling.total_max_node_count:
        return _invalid("max_node_count and total_max_node_count are mutually exclusive.")
    if not (scaling.max_node_count or scaling.total_max_node_count):
        return _invalid("Autoscaling requires a maximum number of nodes.")
    return None


POOL_PAGE = "the API's page on NodePool"
RULES = (
    Rule("name", f"{POOL_PAGE}; google-cloud-container: at most 40 characters", _name),
    Rule("Autopilot", "gcloud reports", _autopilot),
    Rule("release channel", "axlearn cloud/gcp/node_pool.py", _auto_upgrade),
    Rule(
        "scopes",
        "the API's page on NodeConfig: without any, none is added (a warning of ours, made an error)",
        _scopes,
    ),
    Rule("location", POOL_PAGE, _location),
    Rule("machine type", "Compute Engine's machine types are a zone's", _machine),
    Rule(
        "TPUs by machine type",
        "ai-on-gke tpu-provisioner: TPU pools use machine_type only",
        _tpu_accelerators,
    ),
    Rule("topology or policy", "xpk core/nodepool.py", _exclusive),
    Rule("topology", "GKE's page Plan TPUs; reference/gke.md 1.2", _topology),
    Rule("compact", "ai-on-gke tpu-provisioner", _compact),
    Rule("tpu7x by policy", "xpk core/nodepool.py; GKE's page on Ironwood", _by_policy),
    Rule("policy exists", "the API's page on PlacementPolicy.policyName", _policy_exists),
    Rule("flex-start", "xpk core/capacity.py", _flex_start),
    Rule("one way to buy", "xpk core/capacity.py: --flex-start with --reservation-affinity=none", _one_way),
    Rule("queued", "GKE's page on queued provisioning; xpk core/capacity.py", _queued),
    Rule("reservation", "the API's page on ReservationAffinity", _reservation),
    Rule("scaling", "the API's page on NodePoolAutoscaling", _scaling),
    Rule("name taken", "gcloud reports; google.api_core.exceptions.AlreadyExists", _taken),
)


def judge(pool: Pool, gke: FakeGke) -> Answer:
    """Return the first thing that is wrong with a request."""
    for rule in RULES:
        answer = rule.judge(pool, gke)
        if answer is not None:
            return answer
    return None
