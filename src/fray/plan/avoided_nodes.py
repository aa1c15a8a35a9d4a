"""Nodes that a job's next attempts keep off for a while, since its hosts failed there more than once.

What counts as a fault of a node is `node_faults`. Each attempt keeps its own in the status, since most of
its hosts aren't named there otherwise; the list of avoided nodes is what its successor's pods are built
with. Why nobody takes those pods is `scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from fray.accelerators import LABEL_HOSTNAME, LABEL_NODE_POOL
from fray.plan.gang import derive_gang
from fray.plan.node_faults import describe_node_fault
from fray.plan.observation import GangObservation
from fray.plan.timestamps import format_time, parse_time
from fray.wire.frayjob import FrayJobSpec
from fray.wire.status import AttemptStatus, AvoidedNode, NodeFault

__all__ = [
    "add_avoided",
    "build_avoidance",
    "describe_avoided",
    "drop_expired",
    "find_release",
    "record_node_faults",
]

FAULTS = 2
"""Attempts that must have met a fault of a node before it is avoided: one may be chance."""
MOST_AVOIDED = 10
"""Nodes avoided at most: with more, it isn't the nodes, or there is nowhere left to go."""
MOST_FAULTS = 10
"""Faults that an attempt keeps at most: a switch that fails takes thousands of hosts along."""


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
