"""Whether a host ended because its node is broken, and the nodes that the next attempts avoid for that.

Broken is a node that would fail the next pod too. One that is taken back, drained, scaled away or wanted
for something else isn't, nor is one that was deleted: those come back sound, if they do. What the end is
charged to is `verdict`.

Each attempt keeps its node faults in the status, since most of its hosts aren't named there otherwise; the
list of avoided nodes is what its successor's pods are built with. `scheduling` says why nobody takes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fray.accelerators import LABEL_HOSTNAME, LABEL_NODE_POOL
from fray.plan.gang import derive_gang
from fray.plan.observation import (
    START_FAILED,
    EvidenceKind,
    GangObservation,
    HostObservation,
)
from fray.plan.pod_disruption import find_start_fault
from fray.plan.texts import flatten
from fray.plan.timestamps import format_time, parse_time
from fray.wire.frayjob import FrayJobSpec
from fray.wire.status import AttemptStatus, AvoidedNode, NodeFault

__all__ = [
    "FAULTS",
    "MOST_AVOIDED",
    "MOST_FAULTS",
    "add_avoided",
    "build_avoidance",
    "describe_avoided",
    "describe_node_fault",
    "drop_expired",
    "find_release",
    "is_infrastructure_fault",
    "record_node_faults",
    "with_node_pools",
]

REFUSALS = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError", "InvalidNodeInfo"})
"""Pod reasons of a kubelet that takes no such pod for what is wrong with its node or devices:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/lifecycle/predicate.go
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/manager.go
"""
OUT_OF_DEVICES = re.compile(r"OutOf[^/]+\.[^/]+/")
"""Begins the kubelet's reason when the scheduler counted on devices that the node doesn't have any more.

Of CPU, memory and pods a node may be short for a moment, beside other pods: that tells nothing about it.
"""
NODE_IN_TROUBLE = "The node had condition: "
"""In the kubelet's words about pods that it refuses for want of memory, disk or processes:
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/eviction/helpers.go
"""
DEVICE_TROUBLE = re.compile(
    r"/dev/(?:vfio/|accel)\d+\)?: Device or resource busy"
    r"|\bXid\b(?:\s*\([^()]*\))?[\s:]*(?!(?:13|31|43|45|68|109)\b)\d"
    r"|has fallen off the bus|GPU is lost|uncorrectable (?:ECC|NVLink) error"
    r"|Driver/library version mismatch|system not yet initialized|no healthy devices"
)
"""In the last words of a program whose chips don't work, as it and its libraries print them.

libtpu, while a process that was killed still holds its chips; https://docs.nvidia.com/deploy/xid-errors,
without the numbers that NVIDIA's device plugin counts as the program's own
(https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go); NVML, and CUDA's
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html.
"""
FAULT_LENGTH = 160

FAULTS = 2
"""Attempts, or pods of an actor, that must have met a fault of a node that is avoided: one may be chance."""
MOST_AVOIDED = 10
"""Nodes avoided at most: with more, it isn't the nodes, or there is nowhere left to go."""
MOST_FAULTS = 10
"""Faults that an attempt keeps at most: a switch that fails takes thousands of hosts along."""


def is_infrastructure_fault(host: HostObservation, *, spot: bool = False) -> bool:
    """Return whether a host ended because its node is broken; see `describe_node_fault`."""
    return describe_node_fault(host, spot=spot) is not None


def describe_node_fault(host: HostObservation, *, spot: bool = False) -> str | None:
    """Return what is wrong with the node of a host, None where nothing tells of it.

    `spot` says that it is a spot node: those mostly fall silent because they are taken back.
    """
    fault = _find_fault(host, spot=spot)
    return flatten(fault, most=FAULT_LENGTH) if fault else None


def _find_fault(host: HostObservation, *, spot: bool) -> str | None:
    reason, message, sign = host.reason or "", host.message or "", host.disruption
    if reason in REFUSALS or OUT_OF_DEVICES.match(reason):
        return f"{reason}: {message}" if message else reason
    if NODE_IN_TROUBLE in message:
        return message
    if reason == START_FAILED:
        return find_start_fault(message)
    if sign is not None:
        return sign.text if _is_broken(sign.kind, host, spot=spot) else None
    if not host.failed:
        return None
    return next((line.strip() for line in message.splitlines() if DEVICE_TROUBLE.search(line)), None)


def _is_broken(kind: EvidenceKind, host: HostObservation, *, spot: bool) -> bool:
    """Return whether what took a host away tells that its node is broken."""
    match kind:
        case EvidenceKind.NODE_SILENT:
            return not spot
        case EvidenceKind.CONTAINER_LOST:
            # Of a container that never ran the kubelet says the same when its pod is deleted.
            return host.deletion is None
        case _:
            return kind is EvidenceKind.NODE_LOW


def with_node_pools(observed: GangObservation, pools: Mapping[str, str | None]) -> GangObservation:
    """Return the gang with the node pools of hosts on broken nodes, from the labels of nodes by name."""
    hosts = tuple(
        replace(host, node_pool=pools.get(host.node or "")) if is_infrastructure_fault(host) else host
        for host in observed.hosts
    )
    return replace(observed, hosts=hosts)


def record_node_faults(attempt: AttemptStatus, observed: GangObservation, spec: FrayJobSpec) -> AttemptStatus:
    """Return an attempt with the faults of nodes that are seen now, beside those seen before."""
    spot = spec.placement.spot == "Required"
    known = {fault.node: fault for fault in attempt.node_faults}
    for host in observed.hosts:
        fault = describe_node_fault(host, spot=spot)
        if fault is not None and host.node is not None and host.node not in known:
            known[host.node] = NodeFault(node=host.node, fault=fault)
            if host.node_pool is not None:
                known[host.node] = NodeFault(node=host.node, node_pool=host.node_pool, fault=fault)
    faults = list(known.values())[:MOST_FAULTS]
    return attempt if faults == attempt.node_faults else attempt.model_copy(update={"node_faults": faults})


def add_avoided(
    avoided: Sequence[AvoidedNode],
    attempts: Sequence[AttemptStatus],
    spec: FrayJobSpec,
    *,
    until: datetime,
) -> tuple[AvoidedNode, ...]:
    """Return the avoided nodes after the last of `attempts` has ended: the newest last, at most ten.

    A slice of several hosts needs all nodes of its pool, so the pool is avoided as a whole, and not at all
    where it isn't known: hosts would be placed in it that wait for the one that is avoided.
    """
    whole_pools = derive_gang(spec).multi_host_slices
    kept = {entry.node: entry for entry in avoided}
    for fault in attempts[-1].node_faults:
        met = [(attempt.number, seen) for attempt, seen in _faults_of(fault.node, attempts)]
        pool = next((seen.node_pool for _, seen in reversed(met) if seen.node_pool), None)
        if len(met) < FAULTS or (whole_pools and pool is None):
            continue
        kept.pop(fault.node, None)
        entry = AvoidedNode(
            node=fault.node,
            until=format_time(until),
            reason=f"hosts failed there in attempts {_enumerate(met)}: {fault.fault}",
        )
        kept[fault.node] = entry.model_copy(update={"node_pool": pool}) if whole_pools else entry
    return tuple(kept.values())[-MOST_AVOIDED:]


def drop_expired(avoided: Iterable[AvoidedNode], now: datetime) -> tuple[AvoidedNode, ...]:
    """Return the nodes that are still to be avoided."""
    return tuple(entry for entry in avoided if parse_time(entry.until) > now)


def find_release(avoided: Iterable[AvoidedNode]) -> datetime | None:
    """Return when the first of the avoided nodes may be used again, None where there is none."""
    return min((parse_time(entry.until) for entry in avoided), default=None)


def build_avoidance(avoided: Sequence[AvoidedNode]) -> Iterator[tuple[str, list[str], str]]:
    """Yield the node labels that pods keep off, each with its values and why."""
    nodes = [entry for entry in avoided if entry.node_pool is None]
    pools = [entry for entry in avoided if entry.node_pool is not None]
    if nodes:
        yield LABEL_HOSTNAME, [entry.node for entry in nodes], _explain(nodes)
    if pools:
        names = dict.fromkeys(str(entry.node_pool) for entry in pools)
        yield LABEL_NODE_POOL, list(names), _explain(pools)


def describe_avoided(avoided: Iterable[AvoidedNode]) -> str:
    """Return which nodes are avoided, and until when: what keeps a job waiting."""
    return ", ".join(f"{_name(entry)} until {entry.until}" for entry in avoided)


def _explain(avoided: Iterable[AvoidedNode]) -> str:
    entries = (f"{_name(entry)} until {entry.until} ({entry.reason})" for entry in avoided)
    return f"status.avoidedNodes: {'; '.join(entries)}"


def _name(entry: AvoidedNode) -> str:
    return entry.node if entry.node_pool is None else f"{entry.node} and its node pool {entry.node_pool}"


def _faults_of(node: str, attempts: Iterable[AttemptStatus]) -> Iterator[tuple[AttemptStatus, NodeFault]]:
    for attempt in attempts:
        for fault in attempt.node_faults:
            if fault.node == node:
                yield attempt, fault


def _enumerate(met: Sequence[tuple[int, NodeFault]]) -> str:
    *first, last = (str(number) for number, _ in met)
    return f"{', '.join(first)} and {last}"
