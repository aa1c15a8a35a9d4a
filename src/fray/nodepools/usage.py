"""Which node pools are in use: by whose pods, and for which jobs that may need them soon.

Pure; `cluster_objects` asks the cluster. A pool counts as idle only if nothing but DaemonSets runs on it and
no job that lives could want it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fray.accelerators import LABEL_NODE_POOL, LABEL_TPU_CUBE
from fray.nodepools.existing import Pool
from fray.nodepools.requests import derive_pool_demand
from fray.plan.placement import NodeDemand
from fray.plan.status import is_finished
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_JOB
from fray.wire.frayjob import FrayJob

__all__ = ["ClusterObjects", "PoolUse", "derive_usage", "trim_pod"]

ENDED: Final = frozenset({"Succeeded", "Failed"})
MIRROR: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True)
class ClusterObjects:
    """Nodes, pods and FrayJobs of a cluster; `server` is the address of its API server."""

    nodes: Sequence[Mapping[str, Any]]
    pods: Sequence[Mapping[str, Any]]
    jobs: Sequence[FrayJob]
    server: str = ""

    @property
    def has_cubes(self) -> bool:
        """Whether there are nodes that dynamic slices are formed of."""
        return any(LABEL_TPU_CUBE in (node["metadata"].get("labels") or {}) for node in self.nodes)


@dataclass
class PoolUse:
    """How one pool is used. `jobs` are `namespace/name`; `others` counts pods that are no job's.

    `kept_for` is a job that runs elsewhere or not yet, and can use it. `idle_since` is the last sign of use,
    None while it is in use or where nothing is known.
    """

    nodes: int = 0
    jobs: set[str] = field(default_factory=set)
    others: int = 0
    kept_for: str | None = None
    used_nodes: int = 0
    idle_since: datetime | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it and no job may want it."""
        return not self.jobs and not self.others and self.kept_for is None


def trim_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is looked at of a pod: clusters may have very many, and whole ones take much memory."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    trimmed: dict[str, Any] = {"phase": status.get("phase")}
    if trimmed["phase"] in ENDED:
        trimmed["containerStatuses"] = status.get("containerStatuses")
    return {
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")},
        "status": trimmed,
    }


def derive_usage(pools: Sequence[Pool], objects: ClusterObjects) -> dict[str, PoolUse]:
    """Return how each pool is used."""
    uses = {pool.name: PoolUse() for pool in pools}
    pool_of = _read_nodes(uses, objects.nodes)
    used_nodes: dict[str, set[str]] = {}
    for pod in objects.pods:
        node = (pod.get("spec") or {}).get("nodeName")
        pool = pool_of.get(node or "")
        if pool is None or _is_part_of_node(pod):
            continue
        if (pod.get("status") or {}).get("phase") in ENDED:
            _note_end(uses[pool], pod)
            continue
        used_nodes.setdefault(pool, set()).add(str(node))
        job = (pod["metadata"].get("labels") or {}).get(LABEL_JOB)
        if job is None:
            uses[pool].others += 1
        else:
            uses[pool].jobs.add(f"{pod['metadata'].get('namespace', '')}/{job}")
    for name, nodes in used_nodes.items():
        uses[name].used_nodes = len(nodes)
    for job in objects.jobs:
        if not (is_finished(job.status) or job.spec.suspend or job.spec.stopped):
            _keep_for(derive_pool_demand(job, dynamic=objects.has_cubes), job, pools, uses)
    for use in uses.values():
        if not use.is_idle:
            use.idle_since = None
    return uses


def _read_nodes(uses: Mapping[str, PoolUse], nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Count each pool's nodes, and return the pool of each."""
    pool_of: dict[str, str] = {}
    for node in nodes:
        metadata = node["metadata"]
        pool = str((metadata.get("labels") or {}).get(LABEL_NODE_POOL))
        if pool in uses:
            pool_of[metadata["name"]] = pool
            uses[pool].nodes += 1
            _note(uses[pool], metadata.get("creationTimestamp"))
    return pool_of


def _is_part_of_node(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is on a node since the node is there: of a DaemonSet, or the kubelet's own."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return MIRROR in (metadata.get("annotations") or {}) or any(
        owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners
    )


def _note_end(use: PoolUse, pod: Mapping[str, Any]) -> None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        _note(use, ((status.get("state") or {}).get("terminated") or {}).get("finishedAt"))


def _note(use: PoolUse, stamp: str | None) -> None:
    if stamp:
        at = parse_time(stamp)
        use.idle_since = at if use.idle_since is None else max(use.idle_since, at)


def _keep_for(demand: NodeDemand, job: FrayJob, pools: Sequence[Pool], uses: Mapping[str, PoolUse]) -> None:
    """Keep as many pools for a job that lives as it lacks, whether its pods are there or not."""
    if demand.accelerator is None:
        return
    name = f"{job.metadata.namespace or 'default'}/{job.metadata.name}"
    fitting = [pool for pool in pools if _may_serve(pool, demand)]
    lacking = demand.slices - sum(name in uses[pool.name].jobs for pool in fitting)
    if not demand.own_pools:
        # How many of its nodes are elsewhere can't be derived from pools: all that could serve stay.
        lacking = len(fitting)
    for pool in fitting:
        if lacking > 0 and uses[pool.name].is_idle:
            uses[pool.name].kept_for = name
            lacking -= 1


def _may_serve(pool: Pool, demand: NodeDemand) -> bool:
    if not pool.is_good or pool.accelerator != demand.accelerator:
        return False
    # The topology of a pool with a workload policy isn't known from its body.
    return pool.policy is not None or pool.topology == (demand.topology if demand.own_pools else None)
