"""Whether a host ended because its node is broken, and the words for it.

Broken is a node that would fail the next pod too. One that is taken back, drained, scaled away or wanted
for something else isn't, nor is one that was deleted: those come back sound, if they do. What follows for
the next attempts is `avoided_nodes`; what the end is charged to is `verdict`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from fray.plan.observation import (
    START_FAILED,
    EvidenceKind,
    GangObservation,
    HostObservation,
)
from fray.plan.outside_text import flatten
from fray.plan.pod_disruption import find_start_fault

__all__ = ["describe_node_fault", "is_infrastructure_fault", "with_node_pools"]

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
