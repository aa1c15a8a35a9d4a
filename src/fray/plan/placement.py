"""Which nodes an attempt's pods may run on: selectors, affinity, tolerations, each with its reason.

Label and taint keys are facts of `fray.accelerators`; this module decides when each is used. Requests
for CPU, memory and chips are `pod`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fray.accelerators import (
    LABEL_ACCELERATOR_COUNT,
    LABEL_COMPUTE_CLASS,
    LABEL_FLEX_START,
    LABEL_GPU_ACCELERATOR,
    LABEL_NODE_POOL,
    LABEL_REGION,
    LABEL_RESERVATION_AFFINITY,
    LABEL_RESERVATION_NAME,
    LABEL_RESERVATION_PROJECT,
    LABEL_SPOT,
    LABEL_TPU_ACCELERATOR,
    LABEL_TPU_TOPOLOGY,
    LABEL_ZONE,
    TAINT_ARCH,
    TAINT_COMPUTE_CLASS,
    TAINT_FLEX_START,
    TAINT_GPU,
    TAINT_QUEUED,
    TAINT_SPOT,
    TAINT_TPU,
)
from fray.plan.gang import Gang, derive_gang
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Fact
from fray.plan.node_faults import build_avoidance
from fray.plan.texts import format_count
from fray.wire.frayjob import FrayJob, Placement
from fray.wire.status import AvoidedNode

__all__ = ["NodeDemand", "NodePlacement", "build_placement", "derive_demand"]

TPU_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/tpus"
GPU_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus"
SPOT_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms"
FLEX_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/dws"
RESERVATION_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations"
CLASS_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes"
ARM_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/arm-on-gke"


@dataclass(frozen=True)
class NodeDemand:
    """The nodes that an attempt needs, as data: how many, of what kind, and where.

    `slices` slices of `hosts` hosts each are needed; `own_pools` says whether each slice needs a node pool of
    its own, `dynamic` whether slices are formed on demand. `accelerator` is GKE's name of the nodes' TPU or
    GPU, None where the job asks for none; each host uses `chips` of them, and `topology` is that of a TPU
    slice. `queue` must admit the attempt first.
    """

    slices: int
    hosts: int
    own_pools: bool = False
    dynamic: bool = False
    accelerator: str | None = None
    chips: int = 0
    topology: str | None = None
    spot: Literal["Required", "Allowed", "Refused"] = "Allowed"
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    reservation: str | None = None
    queue: str | None = None

    def describe(self) -> str:
        """Return the demand in one line, such as `2 node pools of 4 nodes with tpu-v5p-slice 2x2x4`."""
        if self.dynamic:
            amount = f"{format_count(self.slices, 'dynamic slice')} of {format_count(self.hosts, 'node')}"
        elif self.own_pools:
            amount = f"{format_count(self.slices, 'node pool')} of {format_count(self.hosts, 'node')}"
        elif self.topology is not None:
            amount = format_count(self.slices, "node")
        else:
            amount = f"room for {format_count(self.hosts, 'pod')}"
        if self.topology is not None:
            amount = f"{amount} with {self.accelerator} {self.topology}"
        elif self.accelerator is not None:
            amount = f"{amount} with {self.chips} {self.accelerator}"
        spot = {"Required": "spot only", "Refused": "not spot"}.get(self.spot, "")
        places = [f"in {' or '.join(names)}" for names in (self.regions, self.zones) if names]
        reservation = f"of reservation {self.reservation}" if self.reservation is not None else ""
        queue = f"once queue {self.queue} admits it" if self.queue is not None else ""
        return ", ".join(filter(None, [amount, spot, *places, reservation, queue]))


def derive_demand(job: FrayJob) -> NodeDemand:
    """Return the nodes that each attempt of a job needs; for errors see `derive_gang`."""
    asked, gang = job.spec.placement, derive_gang(job.spec)
    spot: Literal["Required", "Allowed", "Refused"] = "Allowed" if asked.preemptible else "Refused"
    demand = NodeDemand(
        gang.slices,
        gang.hosts_per_slice,
        own_pools=gang.multi_host_slices,
        spot="Required" if asked.spot == "Required" else spot,
        regions=tuple(asked.regions),
        zones=tuple(asked.zones),
        reservation=asked.reservation,
        queue=derive_queue(job).name,
    )
    if gang.tpu is not None:
        tpu = gang.tpu
        return replace(
            demand, accelerator=tpu.accelerator_label, chips=tpu.chips_per_host, topology=tpu.topology
        )
    if gang.gpu is not None:
        return replace(demand, accelerator=gang.gpu.type, chips=gang.gpu.count)
    return demand


@dataclass
class NodePlacement:
    """A pod's node selector, node affinity and tolerations, and why.

    `notices` are sentences for the user about what was asked for and isn't done.
    """

    selector: dict[str, str] = field(default_factory=dict)
    expressions: list[dict[str, Any]] = field(default_factory=list)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def select(self, key: str, value: str, because: str, source: str = "") -> None:
        """Require a node label."""
        self.selector[key] = value
        self.facts.append(Fact(f"node selector {key}", value, because, source))

    def express(self, key: str, operator: str, values: list[str], because: str, source: str = "") -> None:
        """Require a node label to be, or not to be, one of several values."""
        self.expressions.append({"key": key, "operator": operator, "values": values})
        self.facts.append(Fact(f"node affinity {key}", f"{operator} {', '.join(values)}", because, source))

    def tolerate(self, key: str, because: str, source: str = "", *, value: str | None = None) -> None:
        """Tolerate a taint with effect NoSchedule."""
        toleration: dict[str, Any] = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        if value is not None:
            toleration |= {"operator": "Equal", "value": value}
        self.tolerations.append(toleration)
        self.facts.append(Fact(f"toleration {key}", value or "(any)", because, source))

    def to_pod_spec(self) -> dict[str, Any]:
        """Return the fields of a pod's spec."""
        spec: dict[str, Any] = {}
        if self.selector:
            spec["nodeSelector"] = self.selector
        if self.expressions:
            terms = {"nodeSelectorTerms": [{"matchExpressions": self.expressions}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if self.tolerations:
            spec["tolerations"] = self.tolerations
        return spec


def build_placement(
    placement: Placement, gang: Gang, *, avoided: Sequence[AvoidedNode] = (), dynamic: bool = False
) -> NodePlacement:
    """Return where the pods of a gang may run, off the nodes that are `avoided`.

    `dynamic` says that its slices are formed on demand.
    """
    result = NodePlacement()
    _hardware(result, placement, gang, dynamic=dynamic)
    _provisioning(result, placement)
    _location(result, placement, gang)
    _user(result, placement)
    for label, values, why in build_avoidance(avoided):
        result.express(label, "NotIn", values, why)
    return result


def _hardware(result: NodePlacement, placement: Placement, gang: Gang, *, dynamic: bool) -> None:
    if gang.tpu is not None:
        tpu = gang.tpu
        result.select(
            LABEL_TPU_ACCELERATOR,
            tpu.accelerator_label,
            f"GKE's name for nodes of a {tpu.generation}",
            TPU_DOCS,
        )
        if not dynamic:
            why = f"{tpu.type} is a {tpu.topology} slice"
            result.select(LABEL_TPU_TOPOLOGY, tpu.topology, why, TPU_DOCS)
        if tpu.needs_accelerator_count:
            why = (
                f"{tpu.topology} comes as one host of 8 chips or two of 4: the job wants {tpu.chips_per_host}"
            )
            result.select(LABEL_ACCELERATOR_COUNT, str(tpu.chips_per_host), why, TPU_DOCS)
        result.tolerate(TAINT_TPU, "GKE keeps pods without TPUs off TPU nodes", TPU_DOCS)
    if gang.gpu is not None:
        gpu = gang.gpu
        if placement.compute_class is None:
            result.select(LABEL_GPU_ACCELERATOR, gpu.type, "GKE's name for nodes with this GPU", GPU_DOCS)
        else:
            result.notices.append(
                f"compute class {placement.compute_class} chooses the GPU nodes: {gpu.type} is not selected"
            )
        result.tolerate(TAINT_GPU, "GKE keeps pods without GPUs off GPU nodes", GPU_DOCS)
        if gpu.architecture == "arm64":
            why = f"{gpu.type} hosts are arm64, which GKE taints"
            result.tolerate(TAINT_ARCH, why, ARM_DOCS, value="arm64")


def _provisioning(result: NodePlacement, placement: Placement) -> None:
    if placement.spot == "Required":
        if placement.compute_class is None:
            result.select(LABEL_SPOT, "true", "placement.spot is Required", SPOT_DOCS)
        else:
            result.notices.append(
                f"compute class {placement.compute_class} decides about spot: Required is left to it"
            )
    if placement.preemptible:
        why = "placement.preemptible is true: spot nodes are allowed"
        result.tolerate(TAINT_SPOT, why, SPOT_DOCS, value="true")
    else:
        why = "placement.preemptible is false: keeps off spot nodes"
        result.express(LABEL_SPOT, "NotIn", ["true"], why, SPOT_DOCS)
    if placement.flex_start is not None:
        why = f"placement.flexStart is {placement.flex_start}"
        result.select(LABEL_FLEX_START, "true", why, FLEX_DOCS)
        result.tolerate(TAINT_FLEX_START, "flex-start nodes may be tainted", FLEX_DOCS)
    if placement.flex_start == "Queued":
        result.tolerate(TAINT_QUEUED, "nodes that Kueue asks for are tainted", FLEX_DOCS)
    if placement.compute_class is not None:
        why = "placement.computeClass chooses the nodes"
        result.select(LABEL_COMPUTE_CLASS, placement.compute_class, why, CLASS_DOCS)
        result.tolerate(TAINT_COMPUTE_CLASS, "nodes of a compute class are tainted with its name", CLASS_DOCS)
    if placement.reservation is not None:
        _reservation(result, placement, placement.reservation)


def _reservation(result: NodePlacement, placement: Placement, reservation: str) -> None:
    if placement.compute_class is not None:
        result.notices.append(
            f"compute class {placement.compute_class} decides about reservations: {reservation} is left to it"
        )
        return
    why = "placement.reservation asks for it"
    parts = reservation.split("/")
    result.select(LABEL_RESERVATION_NAME, parts[-1], why, RESERVATION_DOCS)
    if len(parts) == 4:
        result.select(LABEL_RESERVATION_PROJECT, parts[1], why, RESERVATION_DOCS)
    result.select(LABEL_RESERVATION_AFFINITY, "specific", "only this reservation will do", RESERVATION_DOCS)


def _location(result: NodePlacement, placement: Placement, gang: Gang) -> None:
    if placement.regions:
        result.express(LABEL_REGION, "In", placement.regions, "placement.regions")
    if placement.zones:
        result.express(LABEL_ZONE, "In", placement.zones, "placement.zones")
    if placement.node_pool is not None:
        result.select(LABEL_NODE_POOL, placement.node_pool, "placement.nodePool names it")
        if gang.multi_host_slices and gang.slices > 1:
            result.notices.append(
                f"node pool {placement.node_pool} holds one slice, but the job asks for {gang.slices}: "
                "leave placement.nodePool out, or ask for one slice"
            )


def _user(result: NodePlacement, placement: Placement) -> None:
    for key, value in placement.node_selector.items():
        previous = result.selector.get(key)
        if previous == value:
            continue
        if previous is not None:
            result.facts = [fact for fact in result.facts if fact.subject != f"node selector {key}"]
            result.notices.append(f"placement.nodeSelector sets {key} to {value} instead of {previous}")
        result.select(key, value, "placement.nodeSelector")
    for toleration in placement.tolerations:
        manifest = toleration.to_manifest()
        if manifest in result.tolerations:
            continue
        result.tolerations.append(manifest)
        printed = " ".join(f"{key}={value}" for key, value in manifest.items() if key != "key")
        result.facts.append(Fact(f"toleration {toleration.key or '(all)'}", printed, "placement.tolerations"))
