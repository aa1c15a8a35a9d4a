"""The nodes that an actor's next pods keep off: each on which two of its pods failed because it is broken.

What tells of a broken node is `node_faults`' to say, for jobs and actors alike. A StatefulSet makes another
pod at once, so a pod that fails is seen for a moment only, or as it was last: its fault stands in the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.manifests import Manifest
from fray.plan.node_faults import FAULTS, MOST_AVOIDED, MOST_FAULTS, describe_node_fault, drop_expired
from fray.plan.pod_observation import derive_pod_observation
from fray.plan.timestamps import format_time
from fray.wire.frayactor import FrayActorStatus, MemberFault
from fray.wire.status import AvoidedNode

__all__ = ["NodeHistory", "derive_node_history"]


@dataclass(frozen=True)
class NodeHistory:
    """The faults of nodes that aren't avoided, and the nodes that are."""

    faults: Sequence[MemberFault]
    avoided: Sequence[AvoidedNode]


def derive_node_history(
    before: FrayActorStatus, pods: Iterable[Manifest], *, spot: bool, seconds: float, now: datetime
) -> NodeHistory:
    """Return what is known of an actor's nodes after a look at `pods`, those that are gone among them.

    `spot` says that the members require spot nodes. A node is avoided for so many `seconds`; 0: none is.
    """
    if seconds <= 0:
        return NodeHistory([], [])
    avoided = {entry.node: entry for entry in drop_expired(before.avoided_nodes, now)}
    faults = {fault.pod_uid: fault for fault in before.node_faults}
    for pod in pods:
        seen = derive_pod_observation(pod)
        fault = describe_node_fault(seen, spot=spot)
        if fault is not None and seen.node is not None and seen.node not in avoided:
            faults.setdefault(
                pod["metadata"]["uid"],
                MemberFault(node=seen.node, pod_uid=pod["metadata"]["uid"], fault=fault),
            )
    for node in {fault.node for fault in faults.values()}:
        met = [fault for fault in faults.values() if fault.node == node]
        if len(met) >= FAULTS:
            until = format_time(now + timedelta(seconds=seconds))
            reason = f"{len(met)} pods of the actor failed there: {met[-1].fault}"
            avoided[node] = AvoidedNode(node=node, until=until, reason=reason)
            faults = {uid: fault for uid, fault in faults.items() if fault.node != node}
    return NodeHistory(list(faults.values())[-MOST_FAULTS:], list(avoided.values())[-MOST_AVOIDED:])
