"""From the nodes that a job needs to the node pools to make: machine type, topology, nodes, how bought.

Pure. How a pool is written down for GKE is `bodies`' work; which of them exist already is `existing`'s.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final, Literal

from fray.accelerators import TpuGeneration, TpuMachine, generations, lookup_gpu
from fray.errors import InvalidRequestError
from fray.plan.gang import derive_gang
from fray.plan.placement import NodeDemand, derive_demand
from fray.wire.frayjob import FrayJob

__all__ = [
    "CUBE_POLICY",
    "MAX_NAME",
    "NAME_PREFIX",
    "PoolChoices",
    "PoolRequest",
    "WorkloadPolicy",
    "build_pool",
    "choose_for_job",
    "derive_pool_demand",
    "find_own_choice",
    "find_zones",
    "name_pool",
]

MAX_NAME: Final = 40
"""Characters of a node pool's name: the API's NodePool page."""
NAME_PREFIX: Final = "fray-"
TPU_MAX_PODS: Final = 15
"""Pods of a TPU node, which saves addresses: XPK and Google's tpu-provisioner use it."""
POLICY_GENERATIONS: Final = frozenset({"tpu7x"})
"""Their multi-host pools get the topology from a workload policy: XPK, core/nodepool.py."""
POLICY_DISK: Final = "hyperdisk-balanced"
"""What tpu7x machines boot from: GKE's page on Ironwood."""
CUBE: Final = "4x4x4"
CUBE_POLICY: Final = f"tpu7x-{CUBE}-provision-only"
"""The workload policy of pools that dynamic slices are formed of, unless another is chosen."""


@dataclass(frozen=True)
class PoolChoices:
    """What a job's demand leaves open, chosen by the user or by the operator's settings.

    `spot` counts where the job allows both kinds of nodes. `machine_type` is needed for GPUs that are
    attached to N1 machines, and chooses among machines with as many chips or GPUs elsewhere. `reservation`
    may be the path of a block or a sub-block. `policy` names a workload policy that exists. `zones` are used
    where the job names none. `queued` is for flex-start pools whose nodes Kueue asks for by
    ProvisioningRequest.
    `dynamic_slices` asks for pools of one cube each, of which GKE forms the slices of a job on demand.
    """

    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    reservation: str | None = None
    machine_type: str | None = None
    policy: str | None = None
    zones: tuple[str, ...] = ()
    service_account: str | None = None
    dynamic_slices: bool = False


@dataclass(frozen=True)
class WorkloadPolicy:
    """A Compute Engine workload policy that a pool names; it is no part of GKE's API.

    `mode` is the policy's `acceleratorTopologyMode`. Compute Engine connects the chips when it makes the
    machines (AUTO_CONNECT, its default), or leaves that to the one who forms slices of them (PROVISION_ONLY).
    Source: xpk core/nodepool.py, and the API's page on resourcePolicies.
    """

    name: str
    topology: str
    mode: Literal["AUTO_CONNECT", "PROVISION_ONLY"] = "AUTO_CONNECT"


@dataclass(frozen=True)
class PoolRequest:
    """One node pool to make.

    `nodes` is the number at the start, in the pool's one zone if it is a slice. Where `max_nodes` is set the
    pool scales between none and that many, over all its zones; a slice does so as a whole. `chips` are those
    of one node, GPUs too.
    """

    name: str
    kind: str
    machine_type: str
    accelerator: str
    chips: int
    nodes: int
    max_nodes: int | None = None
    topology: str | None = None
    policy: WorkloadPolicy | None = None
    gpu: bool = False
    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    reservation: str | None = None
    zones: tuple[str, ...] = ()
    disk_type: str | None = None
    max_pods: int | None = None
    service_account: str | None = None

    @property
    def is_slice(self) -> bool:
        """Whether all nodes are one slice of several hosts: atomic, and of a fixed size."""
        return self.topology is not None or self.policy is not None

    @property
    def most_nodes(self) -> int:
        """Nodes of the pool at its largest."""
        return self.nodes if self.max_nodes is None else self.max_nodes

    @property
    def most_chips(self) -> int:
        """TPU chips or GPUs of the pool at its largest."""
        return self.most_nodes * self.chips

    @property
    def shape(self) -> str:
        """The name without its number: pools of one shape differ in nothing else."""
        return self.name.rpartition("-")[0]


def choose_for_job(job: FrayJob, choices: PoolChoices) -> PoolChoices:
    """Return the choices with what the job's placement says beyond its demand."""
    placement = job.spec.placement
    return replace(
        choices,
        flex_start=choices.flex_start or placement.flex_start is not None,
        queued=choices.queued or placement.flex_start == "Queued",
    )


def find_own_choice(job: FrayJob) -> tuple[str, str] | None:
    """Return the field by which a job itself decides about its nodes, and its value; it gets no pools."""
    placement = job.spec.placement
    named = {"placement.nodePool": placement.node_pool, "placement.computeClass": placement.compute_class}
    return next(((key, name) for key, name in named.items() if name is not None), None)


def derive_pool_demand(job: FrayJob, *, dynamic: bool) -> NodeDemand:
    """Return the nodes that a job needs, by node pools.

    Where slices are formed on demand (`dynamic`), and those of the job can be, each of their cubes is a pool
    of its own: 16 nodes whose chips nobody has connected (GKE's page on dynamic slices).
    """
    demand, tpu = derive_demand(job), derive_gang(job.spec).tpu
    if not dynamic or tpu is None or not tpu.cubes:
        return demand
    hosts = demand.hosts // tpu.cubes
    return replace(demand, slices=demand.slices * tpu.cubes, hosts=hosts, topology=CUBE, dynamic=True)


def build_pool(demand: NodeDemand, choices: PoolChoices) -> PoolRequest:
    """Return the pool that serves one slice of a demand, or where nodes needn't belong together, all of it.

    It has the number 0: `name_pool` gives it another.

    Raises:
        InvalidRequestError: Something must be chosen first, or what was chosen contradicts the job.
    """
    if demand.accelerator is None:
        remedy = "Let the cluster's own pools take it, or make one with `gcloud container node-pools create`."
        raise InvalidRequestError("job", "asks for no TPU or GPU, so that no pool can be derived", remedy)
    spot, reservation = _choose_how(demand, choices)
    zones = find_zones(demand, choices)
    common = PoolRequest(
        name="",
        kind="",
        machine_type="",
        accelerator=demand.accelerator,
        chips=demand.chips,
        nodes=0,
        spot=spot,
        flex_start=choices.flex_start,
        queued=choices.queued,
        reservation=reservation,
        zones=zones,
        service_account=choices.service_account,
    )
    pool = (_build_tpu if demand.topology else _build_gpu)(demand, choices, common)
    if choices.policy is not None and pool.policy is None:
        problem = f"is for tpu7x slices of several hosts, not {pool.machine_type}"
        raise InvalidRequestError("--policy", problem, "Leave it out.")
    return name_pool(pool, 0)


def find_zones(demand: NodeDemand, choices: PoolChoices) -> tuple[str, ...]:
    """Return the zones that were chosen, else the job's, as far as the job allows them; empty if nobody says.

    Raises:
        InvalidRequestError: The job allows none of them.
    """
    given = choices.zones or demand.zones
    zones = [zone for zone in given if not demand.zones or zone in demand.zones]
    zones = [zone for zone in zones if not demand.regions or zone.rpartition("-")[0] in demand.regions]
    if given and not zones:
        allowed = " and ".join(", ".join(names) for names in (demand.zones, demand.regions) if names)
        problem = f"is {', '.join(given)}, and the job may run in {allowed} only"
        raise InvalidRequestError(
            "--zone", problem, "Use a cluster and a zone that the job's placement allows."
        )
    return tuple(zones)


def name_pool(pool: PoolRequest, number: int) -> PoolRequest:
    """Return the pool with the name that follows from what it is, and a number.

    The same request has the same name, no matter who makes it and when: GKE refuses one that was sent twice.
    """
    same = replace(pool, name="") if pool.is_slice else replace(pool, name="", nodes=0, max_nodes=None)
    digest = hashlib.sha256(repr(same).encode()).hexdigest()[:5]
    room = MAX_NAME - len(f"{NAME_PREFIX}-{digest}-{number}")
    kind = pool.kind[:room].rstrip("-")
    return replace(pool, name=f"{NAME_PREFIX}{kind}-{digest}-{number}")


def _choose_how(demand: NodeDemand, choices: PoolChoices) -> tuple[bool, str | None]:
    """Return whether the nodes are spot, and of which reservation."""
    reservation = choices.reservation or demand.reservation
    if demand.reservation is not None and choices.reservation is not None:
        named, chosen = (_reservation_name(each) for each in (demand.reservation, choices.reservation))
        if named != chosen:
            problem = f"is {choices.reservation}, but the job's placement.reservation is {demand.reservation}"
            raise InvalidRequestError("--reservation", problem, "Name the same, or a block of it.")
    spot = demand.spot == "Required" or (choices.spot and demand.spot == "Allowed")
    if choices.spot and demand.spot == "Refused":
        remedy = "Leave it out, or set placement.preemptible to true."
        raise InvalidRequestError("--spot", "contradicts the job, which keeps off spot nodes", remedy)
    if choices.queued and not choices.flex_start:
        remedy = "Add --flex-start, or set placement.flexStart to Queued."
        raise InvalidRequestError("--queued", "is for flex-start nodes", remedy)
    ways = [
        name
        for name, chosen in (("spot", spot), ("flex-start", choices.flex_start), ("reservation", reservation))
        if chosen
    ]
    if len(ways) > 1:
        problem = f"asks for {' and '.join(ways)} at once, and a node is bought in one way"
        raise InvalidRequestError("job", problem, "Choose one of them.")
    return spot, reservation


def _reservation_name(path: str) -> str:
    """Return the reservation's own name: `projects/P/reservations/R/reservationBlocks/B` is of `R`."""
    parts = path.split("/")
    return parts[parts.index("reservations") + 1] if "reservations" in parts[:-1] else parts[0]


def _build_tpu(demand: NodeDemand, choices: PoolChoices, common: PoolRequest) -> PoolRequest:
    assert demand.topology is not None
    generation, machine = _find_machine(demand)
    common = replace(
        common,
        kind=generation.canonical_name(demand.topology),
        machine_type=_choose_machine(demand, choices, machine.machine_types),
        max_pods=TPU_MAX_PODS,
        disk_type=POLICY_DISK if generation.name in POLICY_GENERATIONS else None,
    )
    if not demand.own_pools:
        return replace(common, max_nodes=demand.slices * demand.hosts)
    if len(common.zones) != 1:
        problem = "must be one zone for a slice of several hosts"
        known = f": {', '.join(common.zones)}" if common.zones else ""
        raise InvalidRequestError("--zone", problem, f"Name the zone that has such TPUs{known}.")
    nodes, most = (0, demand.hosts) if common.flex_start else (demand.hosts, None)
    common = replace(common, nodes=nodes, max_nodes=most)
    if demand.dynamic:
        cube = WorkloadPolicy(choices.policy or CUBE_POLICY, demand.topology, "PROVISION_ONLY")
        return replace(common, policy=cube)
    if generation.name in POLICY_GENERATIONS:
        name = choices.policy or f"{generation.name}-{demand.topology}"
        return replace(common, policy=WorkloadPolicy(name, demand.topology))
    return replace(common, topology=demand.topology)


def _find_machine(demand: NodeDemand) -> tuple[TpuGeneration, TpuMachine]:
    """Return the machine of a demand that `derive_demand` made, which has one."""
    return next(
        (generation, machine)
        for generation in generations()
        for machine in generation.machines_of(demand.topology or "")
        if machine.accelerator_label == demand.accelerator and machine.chips == demand.chips
    )


def _build_gpu(demand: NodeDemand, choices: PoolChoices, common: PoolRequest) -> PoolRequest:
    assert demand.accelerator is not None
    legal = lookup_gpu(demand.accelerator, count=demand.chips).machine_types
    kind = f"{demand.accelerator.removeprefix('nvidia-').removeprefix('tesla-')}-{demand.chips}"
    return replace(
        common,
        kind=kind,
        machine_type=_choose_machine(demand, choices, legal),
        gpu=True,
        max_nodes=demand.slices * demand.hosts,
    )


def _choose_machine(demand: NodeDemand, choices: PoolChoices, legal: tuple[str, ...]) -> str:
    """Return the machine type that was chosen, else the first that is legal; any is where none is listed."""
    machine_type = choices.machine_type or (legal[0] if legal else None)
    if machine_type is None:
        problem = f"is needed: {demand.accelerator} is attached to an N1 machine of your choice"
        raise InvalidRequestError("--machine-type", problem, "Name one, such as n1-standard-8.")
    if legal and machine_type not in legal:
        problem = f"is {machine_type}, which hasn't {demand.chips} {demand.accelerator}"
        raise InvalidRequestError("--machine-type", problem, f"Legal: {', '.join(legal)}.")
    return machine_type
