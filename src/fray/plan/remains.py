"""What was seen of hosts and isn't any more: it counts until their attempt's verdict.

A pod may be marked, end and be removed between two looks. What it showed last is kept by its watcher
(`tells_of_end`), and a mark that was seen once stands in the status, for later looks.
"""

from __future__ import annotations

from dataclasses import replace

from fray.plan.manifests import Manifest, has_ended, list_containers
from fray.plan.observation import (
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
)
from fray.plan.pod_disruption import find_mark
from fray.plan.reasons import get_row
from fray.plan.timestamps import format_time
from fray.wire.status import AttemptStatus, Disruption

__all__ = ["note_disruption", "recall_disruption", "tells_of_end"]


def tells_of_end(pod: Manifest) -> bool:
    """Return whether the last state of a pod that is gone tells how it ended, or that it was taken away."""
    if has_ended(pod) or find_mark(pod):
        return True
    return any("terminated" in container.get("state", {}) for container in list_containers(pod))


def note_disruption(attempt: AttemptStatus, observed: GangObservation | None) -> AttemptStatus:
    """Return an attempt with the sign that a host is taken away, for as long as it may explain its end.

    It is dropped when the sign is withdrawn, as Kubernetes does with an eviction that nobody carried out.
    """
    explained = attempt.reason is not None and get_row(attempt.reason).certain
    noted = None if explained else _find_sign(attempt, observed)
    return attempt if noted == attempt.disruption else attempt.model_copy(update={"disruption": noted})


def recall_disruption(attempt: AttemptStatus, observed: GangObservation) -> GangObservation:
    """Return the gang with the sign that was seen of a host whose pod isn't there any more."""
    noted = attempt.disruption
    if noted is None:
        return observed
    hosts = tuple(
        replace(host, evidence=_read(noted)) if _is_missing(host, noted) else host for host in observed.hosts
    )
    return replace(observed, hosts=hosts)


def _find_sign(attempt: AttemptStatus, observed: GangObservation | None) -> Disruption | None:
    noted = attempt.disruption
    if observed is None:
        return noted
    signs = [host for host in observed.hosts if host.disruption is not None]
    if not signs:
        return None
    known = noted is not None and any(host.rank == noted.rank for host in signs)
    if known:
        return noted
    first = min(signs, key=lambda host: host.rank)
    return _write(first, first.disruption) if first.disruption is not None else None


def _write(host: HostObservation, sign: Evidence) -> Disruption:
    disruption = Disruption(
        rank=host.rank, pod=host.name, node=host.node, kind=sign.kind.value, message=sign.text
    )
    return disruption if sign.at is None else disruption.model_copy(update={"time": format_time(sign.at)})


def _read(noted: Disruption) -> Evidence:
    """Return a sign that stands in the status; a kind that another version wrote is the most general one."""
    kind = EvidenceKind(noted.kind) if noted.kind in list(EvidenceKind) else EvidenceKind.TAKEN
    return Evidence(kind, noted.message)


def _is_missing(host: HostObservation, noted: Disruption) -> bool:
    if host.rank != noted.rank or host.disruption is not None:
        return False
    return host.name is None or host.phase is HostPhase.GONE
