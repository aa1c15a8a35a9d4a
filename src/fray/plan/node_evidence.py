"""What nodes tell of an attempt's hosts: that one is taken away, or can't be ended any more.

A machine that dies says nothing, and Kubernetes takes minutes to give up its pods. Until then the other hosts
of the gang crash, as if it were their fault, and what was running there can't be asked to end. Its node shows
both. Fetching nodes is the caller's; without the right to, only how long a pod has outlived its deletion
tells, which is less precise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fray.plan.observation import (
    Deletion,
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.scheduling import NodeSummary
from fray.plan.timestamps import CLOCK_SKEW, format_time
from fray.plan.verdict import derive_settling, find_first_end, is_uncertain, is_uncertain_end
from fray.wire.status import AttemptStatus

__all__ = [
    "TAINT_OUT_OF_SERVICE",
    "Nodes",
    "derive_next_look",
    "is_late",
    "needs_nodes",
    "with_node_evidence",
]

TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OUT_OF_SERVICE = frozenset({TAINT_OUT_OF_SERVICE, "node.cloudprovider.kubernetes.io/shutdown"})
"""Taints of machines that are off, as their administrator or the cloud says:
https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
https://github.com/kubernetes/cloud-provider/blob/v0.34.4/api/well_known_taints.go
"""
SCALED_DOWN = "ToBeDeletedByClusterAutoscaler"
"""Taint of nodes that the autoscaler is about to remove; its value is when it was put there, in Unix seconds:
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/utils/taints/taints.go
"""
SILENT = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"})
"""Taints of nodes that have stopped reporting, or report that they can't run pods."""
LEAVING = frozenset(
    {
        *OUT_OF_SERVICE,
        *SILENT,
        SCALED_DOWN,
        "cloud.google.com/impending-node-termination",
    }
)
"""Taints of nodes that lose their pods:
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
https://cloud.google.com/kubernetes-engine/docs/how-to/handle-disruption-gpu-tpu
"""
TOO_LATE = timedelta(minutes=2)
"""What happens to a node later than this after the first failure is no cause of it. Kubernetes sees only
after 50 s that a kubelet is silent (node-monitor-grace-period), and clocks differ.
"""
LIST_AGE = timedelta(seconds=15)
"""How old a list of nodes may be."""
PATIENCE = timedelta(seconds=15)
"""How long after its deletion a pod may take to end before its node is looked at."""
LOOK_SECONDS = 15.0
OVERDUE = timedelta(minutes=5)
"""How long a pod may outlive the time that its deletion gave it where nodes can't be read: its node doesn't
answer then, as far as one can tell.
"""


@dataclass(frozen=True)
class Nodes:
    """The nodes there are by name, None where they can't be read.

    `unreachable_after` is how long a node must have been silent before what ran there counts as ended. Its
    start and the deletion of pods are by the control plane's clock, so it includes what `now` differs by.
    """

    by_name: Mapping[str, NodeSummary] | None = None
    unreachable_after: timedelta = timedelta(minutes=1)

    @classmethod
    def of(cls, nodes: Iterable[NodeSummary] | None, *, unreachable_seconds: float) -> Nodes:
        """Return the nodes of a list, or that there is none."""
        by_name = None if nodes is None else {node.name: node for node in nodes}
        return cls(by_name, timedelta(seconds=unreachable_seconds))

    def derive_end(self, node: str | None, deletion: Deletion | None) -> datetime | None:
        """Return when a pod that doesn't end counts as ended, None where it is to be waited for.

        It was asked to end, and nothing on its node will ever do it. A node that isn't ready but reports may
        still end it; so may Kubernetes for one that was removed, for which it takes a minute.
        """
        if deletion is None:
            return None
        if self.by_name is None:
            return deletion.due + OVERDUE
        found = self.by_name.get(node or "")
        if found is None:
            return None if node is None else deletion.due + self.unreachable_after
        if found.unready_since is None:
            return None  # it is ready
        if any(key in OUT_OF_SERVICE for key, _, _ in found.taints):
            return max(found.unready_since, deletion.asked)
        # Silence and deletion have times of the control plane's clock: no node's is in it.
        return max(found.unready_since + self.unreachable_after, deletion.asked) if found.silent else None

    def cannot_end(self, node: str | None, deletion: Deletion | None, *, now: datetime) -> bool:
        """Return whether a pod counts as ended although nobody has seen it end."""
        end = self.derive_end(node, deletion)
        return end is not None and now >= end

    def find_fault(self, host: HostObservation, *, now: datetime) -> Evidence | None:
        """Return what is wrong with the node of a host, None while it is well."""
        if self.by_name is None:
            overdue = self.cannot_end(host.node, host.deletion, now=now)
            sentence = "it outlived its deletion, so its node seems not to answer"
            return _silent(sentence, host.deletion.asked) if overdue and host.deletion else None
        if host.node is None:
            return None
        found = self.by_name.get(host.node)
        if found is None:
            # The list may be older than the node: one on which a host has run for longer isn't missed in it.
            known = host.started_at is not None and now >= host.started_at + CLOCK_SKEW + LIST_AGE
            return _leaving(f"its node {host.node} is gone") if known else None
        if not found.ready and found.unready_since is not None:
            what = "has been silent" if found.silent else "has not been ready"
            sentence = f"its node {host.node} {what} since {format_time(found.unready_since)}"
            return _silent(sentence, found.unready_since)
        for key, value, _ in found.taints:
            if key in LEAVING:
                since = datetime.fromtimestamp(int(value), UTC) if _is_unix_time(key, value) else None
                sentence = f"its node {host.node} has the taint {key}"
                return _silent(sentence, since) if key in SILENT else _leaving(sentence, since)
        return None


def needs_nodes(
    attempt: AttemptStatus, observed: GangObservation, *, now: datetime, settle_seconds: float
) -> bool:
    """Return whether nodes are to be looked at: a host doesn't end, or nothing tells why the gang has.

    The latter only once its end is judged: what is seen before may not be all.
    """
    if any(not host.ended and is_late(host.deletion, now=now) for host in observed.hosts):
        return True
    if not observed.ended or all(host.node is None for host in observed.hosts):
        return False
    settling = derive_settling(observed, now=now, seconds=settle_seconds)
    return settling is None and is_uncertain(attempt, observed)


def derive_next_look(observed: GangObservation, *, now: datetime) -> float | None:
    """Return the seconds after which hosts that are to end are looked at again: no event tells of nodes."""
    asked = [host.deletion.asked for host in observed.hosts if host.deletion and not host.ended]
    if not asked:
        return None
    seconds = (min(asked) + PATIENCE - now).total_seconds()
    return seconds if seconds > 0 else LOOK_SECONDS


def with_node_evidence(observed: GangObservation, nodes: Nodes, *, now: datetime) -> GangObservation:
    """Return the gang with what its nodes tell: who is taken away, and who counts as ended."""
    asked = (host.deletion.asked for host in observed.hosts if host.deletion is not None)
    # Where the pod that failed first is gone, its peers were asked to end right after it.
    first = find_first_end(observed) or min(asked, default=None)
    hosts = tuple(_judge(host, nodes, first, now) for host in observed.hosts)
    given_up = any(
        host.ended and not before.ended for host, before in zip(hosts, observed.hosts, strict=True)
    )
    if observed.settled and given_up:
        # The JobSet is being deleted, and only what doesn't end any more holds it: no more pods will come.
        hosts = tuple(_without_pod(host) for host in hosts)
    return replace(observed, hosts=hosts)


def _without_pod(host: HostObservation) -> HostObservation:
    """Return a host as ended whose pod is gone; its peers that have one are left as they are."""
    if host.name is not None or host.ended:
        return host
    return replace(host, phase=HostPhase.GONE)


def _judge(host: HostObservation, nodes: Nodes, first: datetime | None, now: datetime) -> HostObservation:
    if host.phase in (HostPhase.SUCCEEDED, HostPhase.GONE):
        return host
    fault = nodes.find_fault(host, now=now)
    explained = host.disruption is not None or (host.ended and not is_uncertain_end(host))
    if fault is not None and not explained and _is_cause(fault, first, now):
        host = replace(host, evidence=fault)
    end = nodes.derive_end(host.node, host.deletion)
    if host.ended or end is None or now < end:
        return host
    message = fault.text if fault is not None else f"its node {host.node} doesn't answer"
    return replace(host, phase=HostPhase.FAILED, message=message, ended_at=end)


def _is_cause(fault: Evidence, first: datetime | None, now: datetime) -> bool:
    """Return whether what is wrong with a node may have made the first host fail.

    What tells no time counts from when it is seen: a node may well be removed because its job has ended.
    """
    return first is None or (fault.at or now) <= first + TOO_LATE


def is_late(deletion: Deletion | None, *, now: datetime) -> bool:
    """Return whether a pod that still runs should have ended by now, so that its node is looked at."""
    return deletion is not None and now >= deletion.asked + PATIENCE


def _silent(text: str, since: datetime | None) -> Evidence:
    return Evidence(EvidenceKind.NODE_SILENT, text, since)


def _leaving(text: str, since: datetime | None = None) -> Evidence:
    return Evidence(EvidenceKind.NODE_LEAVING, text, since)


def _is_unix_time(key: str, value: str) -> bool:
    # Ten digits: a number of any length has no date.
    return key == SCALED_DOWN and value.isascii() and value.isdigit() and len(value) <= 10
