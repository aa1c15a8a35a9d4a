"""The node pools that a cluster has, read from GKE's answers, and which of them can hold a job.

Pure. Bodies are the JSON form of the API's messages, as `bodies` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fray.accelerators import (
    TAINT_ARCH,
    TAINT_FLEX_START,
    TAINT_GPU,
    TAINT_QUEUED,
    TAINT_SPOT,
    TAINT_TPU,
    generations,
)
from fray.nodepools.answers import derive_error
from fray.nodepools.requests import PoolRequest, name_pool
from fray.plan.placement import NodeDemand
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_POOL_MADE_BY

__all__ = [
    "Cluster",
    "Operation",
    "Pool",
    "Provisioning",
    "can_hold",
    "derive_provisioning",
    "find_missing",
    "number_pools",
    "read_cluster",
    "read_operation",
    "read_pool",
]

TOLERATED: Final = frozenset({TAINT_TPU, TAINT_GPU, TAINT_SPOT, TAINT_FLEX_START, TAINT_QUEUED, TAINT_ARCH})
"""Keys of taints that jobs tolerate without saying so; pools with others are kept for somebody."""
GOOD: Final = frozenset({"RUNNING", "PROVISIONING", "RECONCILING", "RUNNING_WITH_ERROR"})
"""States of a pool that has nodes, or gets them."""


@dataclass(frozen=True)
class Pool:
    """One node pool as GKE tells of it.

    `most_nodes` counts all zones. `topology` is that of a slice of several hosts; `policy` names what stands
    for it on newer machines. `made_by` is who of Fray made it, None for pools of others. `message` is GKE's,
    where it is broken.
    """

    name: str
    machine_type: str
    status: str
    nodes: int
    most_nodes: int
    topology: str | None = None
    policy: str | None = None
    accelerator: str | None = None
    chips: int = 0
    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    reservation: str | None = None
    zones: tuple[str, ...] = ()
    taints: frozenset[str] = frozenset()
    made_by: str | None = None
    message: str = ""

    @property
    def is_slice(self) -> bool:
        """Whether all its nodes are one slice."""
        return self.topology is not None or self.policy is not None

    @property
    def is_good(self) -> bool:
        """Whether it has nodes, or gets them."""
        return self.status in GOOD

    @property
    def problem(self) -> str:
        """What is wrong with it, in one sentence with GKE's words; these alone where nobody knows them."""
        error = derive_error(self.name, self.message)
        return error.said if error.reason == "Refused" else error.sentence


@dataclass(frozen=True)
class Operation:
    """Something that GKE does, which takes minutes; `pool` is None where it concerns the whole cluster.

    `kind` is GKE's word, such as `CREATE_NODE_POOL`; `error` is what it says where the operation failed, and
    `ended` when, in seconds since 1970, None where it doesn't say so.
    """

    name: str
    kind: str
    pool: str | None
    is_done: bool
    error: str = ""
    ended: float | None = None


@dataclass(frozen=True)
class Cluster:
    """What matters here of a GKE cluster; `limits` are node auto-provisioning's, by accelerator.

    `endpoints` are the addresses of its control plane, by whichever of them it is reached. With
    `private_nodes` the nodes of new pools have no public address; with `private_endpoint` the control plane
    has none. `dns_endpoint` says that it can be reached by a name of Google's from anywhere.
    """

    zones: tuple[str, ...]
    autopilot: bool = False
    auto_provisioning: bool = False
    limits: Mapping[str, int] | None = None
    endpoints: tuple[str, ...] = ()
    private_nodes: bool = False
    private_endpoint: bool = False
    dns_endpoint: bool = False


@dataclass(frozen=True)
class Provisioning:
    """That GKE makes the nodes itself, and what may keep it from doing so, with the next step."""

    sentence: str
    limitation: str = ""
    remedy: str = ""


def read_cluster(body: Mapping[str, Any]) -> Cluster:
    """Return what a cluster's body says."""
    autoscaling = body.get("autoscaling") or {}
    limits = {
        str(each.get("resourceType")): int(each.get("maximum", 0))
        for each in autoscaling.get("resourceLimits") or ()
    }
    private = body.get("privateClusterConfig") or {}
    ways = body.get("controlPlaneEndpointsConfig") or {}
    dns, ip = ways.get("dnsEndpointConfig") or {}, ways.get("ipEndpointsConfig") or {}
    network = body.get("networkConfig") or {}
    endpoints = (
        body.get("endpoint"),
        private.get("privateEndpoint"),
        private.get("publicEndpoint"),
        ip.get("privateEndpoint"),
        ip.get("publicEndpoint"),
        dns.get("endpoint"),
    )
    return Cluster(
        zones=tuple(body.get("locations") or ()),
        autopilot=bool((body.get("autopilot") or {}).get("enabled")),
        auto_provisioning=bool(autoscaling.get("enableNodeAutoprovisioning")),
        limits=limits,
        endpoints=tuple(dict.fromkeys(str(each) for each in endpoints if each)),
        private_nodes=bool(network.get("defaultEnablePrivateNodes") or private.get("enablePrivateNodes")),
        private_endpoint=bool(private.get("enablePrivateEndpoint"))
        or ip.get("enablePublicEndpoint") is False,
        dns_endpoint=bool(dns.get("allowExternalTraffic")),
    )


def read_operation(body: Mapping[str, Any]) -> Operation:
    """Return what an operation's body says."""
    target = str(body.get("targetLink", "")).split("/")
    error = body.get("error") or {}
    code = error.get("code")
    return Operation(
        name=str(body.get("name", "")),
        kind=str(body.get("operationType", "")),
        pool=target[-1] if "nodePools" in target[-2:] else None,
        is_done=body.get("status") == "DONE",
        # The older of the two fields is also set only where an error has occurred.
        error=str(error.get("message") or body.get("statusMessage") or (f"code {code}" if code else "")),
        ended=_read_time(body.get("endTime")),
    )


def _read_time(text: object) -> float | None:
    try:
        return parse_time(str(text)).timestamp()
    except ValueError:
        return None


def read_pool(body: Mapping[str, Any]) -> Pool:
    """Return what a node pool's body says."""
    config = body.get("config") or {}
    placement = body.get("placementPolicy") or {}
    zones = tuple(body.get("locations") or ())
    accelerator, chips = _read_accelerator(config)
    nodes = int(body.get("initialNodeCount", 0)) * max(1, len(zones))
    return Pool(
        name=str(body.get("name", "")),
        machine_type=str(config.get("machineType", "")),
        status=str(body.get("status", "")),
        nodes=nodes,
        most_nodes=_read_most(body.get("autoscaling") or {}, nodes, len(zones)),
        topology=placement.get("tpuTopology") or None,
        policy=placement.get("policyName") or None,
        accelerator=accelerator,
        chips=chips,
        spot=bool(config.get("spot") or config.get("preemptible")),
        flex_start=bool(config.get("flexStart")),
        queued=bool((body.get("queuedProvisioning") or {}).get("enabled")),
        taints=frozenset(str(each.get("key")) for each in config.get("taints") or ()),
        reservation=next(iter((config.get("reservationAffinity") or {}).get("values") or ()), None),
        zones=zones,
        made_by=(config.get("labels") or {}).get(LABEL_POOL_MADE_BY),
        message=str(body.get("statusMessage", "")),
    )


def _read_accelerator(config: Mapping[str, Any]) -> tuple[str | None, int]:
    for each in config.get("accelerators") or ():
        return str(each.get("acceleratorType")), int(each.get("acceleratorCount", 0))
    for generation in generations():
        for machine in generation.machines:
            if config.get("machineType") in machine.machine_types:
                return machine.accelerator_label, machine.chips
    return None, 0


def _read_most(autoscaling: Mapping[str, Any], nodes: int, zones: int) -> int:
    if not autoscaling.get("enabled"):
        return nodes
    total = int(autoscaling.get("totalMaxNodeCount", 0))
    return total or int(autoscaling.get("maxNodeCount", 0)) * max(1, zones)


def can_hold(pool: Pool, request: PoolRequest, demand: NodeDemand) -> bool:
    """Whether nodes of an existing pool serve a demand as those of a request would, but for their number."""
    if not pool.is_good or (pool.accelerator, pool.chips) != (request.accelerator, request.chips):
        return False
    policy = request.policy.name if request.policy is not None else None
    if (pool.topology, pool.policy) != (request.topology, policy):
        return False
    if (pool.flex_start, pool.queued) != (request.flex_start, request.queued) or pool.taints - TOLERATED:
        return False
    if demand.spot != "Allowed" and pool.spot != (demand.spot == "Required"):
        return False
    if request.reservation is not None and pool.reservation != request.reservation:
        return False
    return not request.zones or set(pool.zones) <= set(request.zones)


def find_missing(
    request: PoolRequest, demand: NodeDemand, pools: Sequence[Pool], *, used_nodes: Mapping[str, int]
) -> tuple[list[Pool], list[PoolRequest]]:
    """Return the existing pools that serve a demand, and what must be made beside them.

    Args:
        request: What `build_pool` made of the demand.
        demand: The nodes that a job needs.
        pools: All pools of the cluster.
        used_nodes: How many nodes of each pool are in use now.
    """
    fitting = [pool for pool in pools if can_hold(pool, request, demand)]
    if request.is_slice:
        free_slices = [pool for pool in fitting if not used_nodes.get(pool.name)][: demand.slices]
        return free_slices, number_pools([request] * (demand.slices - len(free_slices)), pools)
    serving: list[Pool] = []
    lacking = request.most_nodes
    for pool in fitting:
        free = pool.most_nodes - used_nodes.get(pool.name, 0)
        if free > 0 and lacking > 0:
            serving.append(pool)
            lacking -= free
    rest = [replace(request, max_nodes=lacking)] if lacking > 0 else []
    return serving, number_pools(rest, pools)


def number_pools(requests: Iterable[PoolRequest], pools: Sequence[Pool]) -> list[PoolRequest]:
    """Number pools with the lowest numbers that no pool has, in whatever state it is."""
    taken = {pool.name for pool in pools}
    named = []
    for request in requests:
        number = 0
        while (one := name_pool(request, number)).name in taken:
            number += 1
        taken.add(one.name)
        named.append(one)
    return named


def derive_provisioning(cluster: Cluster, demand: NodeDemand) -> Provisioning | None:
    """Return that GKE makes the nodes itself when pods wait; None where pools must be made."""
    if demand.accelerator is None:
        return None
    if cluster.autopilot:
        return Provisioning("Autopilot makes the nodes when the job's pods wait")
    if not cluster.auto_provisioning:
        return None
    sentence = "node auto-provisioning makes the pools when the job's pods wait"
    needed = demand.slices * demand.hosts * demand.chips
    limit = (cluster.limits or {}).get(demand.accelerator)
    if limit is not None and limit >= needed:
        return Provisioning(sentence)
    limitation = (
        f"it has no limit for {demand.accelerator}, so that it adds none"
        if limit is None
        else f"its limit for {demand.accelerator} is {limit}, and the job needs {needed}"
    )
    flag = f"--max-accelerator=type={demand.accelerator},count={needed}"
    remedy = f"Set it with the cluster's other limits: `gcloud container clusters update` and `{flag}`."
    return Provisioning(sentence, limitation, remedy)
