"""Who may reach pods with servers of Fray: those servers' ports the pods that need to, all others anybody.

A pod that no NetworkPolicy selects can be reached from everywhere. One that is selected can be reached only
as the policies say, so this one says of all ports but the pool's that they are open as before. It comes on
top of mutual TLS: what can't connect can't use up places, and Ray's connections are guarded by a token only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fray.plan.manifests import build_controller, build_labels, build_owner_references
from fray.vocabulary import (
    ACTOR_PORT,
    LABEL_ACTOR_UID,
    LABEL_JOB,
    LABEL_JOB_UID,
    POOL_PORTS,
    RAY_CLIENT_PORT,
    RAY_WORKER_PORTS,
    Role,
)
from fray.wire.frayactor import FrayActor
from fray.wire.frayjob import FrayJob

__all__ = ["build_actor_network_policy", "build_network_policy"]

HIGHEST: Final = 65535
PortRange = tuple[int, int]
"""First and last port."""
MORE_PORTS: Final[Mapping[str, Sequence[PortRange]]] = {
    "ray": (RAY_WORKER_PORTS, (RAY_CLIENT_PORT, RAY_CLIENT_PORT))
}
"""Ports of an engine besides those of every pool."""


def build_network_policy(job: FrayJob, *, guarded: Sequence[PortRange] | None = None) -> dict[str, Any]:
    """Return the NetworkPolicy of a job with workers; it serves all attempts, and goes with the job.

    `guarded` are the TCP ports that strangers don't reach, by default those of the pool's engine. The network
    of the cluster must know `endPort`, as GKE's Dataplane V2, Calico and Cilium do.
    """
    if guarded is None:
        guarded = (POOL_PORTS, *MORE_PORTS.get(job.spec.workers.engine, ()))
    uid = job.metadata.uid
    whose = {LABEL_JOB: job.metadata.name} if uid is None else {LABEL_JOB_UID: uid}
    metadata: dict[str, Any] = {
        "name": f"{job.metadata.name}-pool",
        "labels": build_labels(job, role=Role.NETWORK),
        **build_owner_references(job),
    }
    if job.metadata.namespace is not None:
        metadata["namespace"] = job.metadata.namespace
    return _build(metadata, whose=whose, callers=whose, guarded=guarded)


def build_actor_network_policy(actor: FrayActor, *, labels: dict[str, str]) -> dict[str, Any]:
    """Return the NetworkPolicy of an actor's members: all pods of the namespace may call them, and no others.

    It has the actor's `labels`, and goes with the actor.
    """
    metadata = {
        "name": f"{actor.metadata.name}-actor",
        "namespace": actor.metadata.namespace,
        "labels": labels,
        "ownerReferences": [build_controller(actor.api_version, actor.kind, actor.metadata)],
    }
    whose = {LABEL_ACTOR_UID: labels[LABEL_ACTOR_UID]}
    return _build(metadata, whose=whose, callers={}, guarded=((ACTOR_PORT, ACTOR_PORT),))


def _build(
    metadata: dict[str, Any],
    *,
    whose: dict[str, str],
    callers: dict[str, str],
    guarded: Sequence[PortRange],
) -> dict[str, Any]:
    """Return the policy of pods labelled `whose`; their guarded ports are open to pods labelled `callers`."""
    unguarded = [{"protocol": "TCP", "port": first, "endPort": last} for first, last in _find_others(guarded)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": whose},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": callers}}]},
                # A protocol without a port is all of its ports.
                {"ports": [*unguarded, {"protocol": "UDP"}, {"protocol": "SCTP"}]},
            ],
        },
    }


def _find_others(guarded: Sequence[PortRange]) -> list[PortRange]:
    """Return all ports that aren't in these ranges, as ranges."""
    others, free = [], 1
    for first, last in sorted(guarded):
        if free < first:
            others.append((free, first - 1))
        free = max(free, last + 1)
    return [*others, (free, HIGHEST)] if free <= HIGHEST else others
