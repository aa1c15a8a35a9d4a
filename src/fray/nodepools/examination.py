"""What `fray doctor` says of a GKE cluster: whether GKE answers, which node pools there are, and quota left.

Only for clusters whose kubeconfig entry names them as gcloud does. Whoever runs jobs needs no access to GKE:
what can't be asked is unknown, and no fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from fray.cluster.base import CheckResult, Mark
from fray.errors import (
    ExtraMissingError,
    FrayError,
    GkeClusterError,
    GkeCredentialsError,
    NodePoolError,
)
from fray.nodepools.compute import Compute, OpenSession, Quota, open_session
from fray.nodepools.existing import Cluster, Pool
from fray.nodepools.gke import Gke, OpenClient, find_cluster, open_client
from fray.plan.counts import format_count

__all__ = ["examine_gke", "judge_pools", "judge_quotas"]

ACCELERATORS = ("GPUS", "TPU")
"""Parts of the names of quotas that are about accelerators."""


def examine_gke(
    environ: Mapping[str, str],
    *,
    context: str | None = None,
    open_client: OpenClient = open_client,
    open_session: OpenSession = open_session,
) -> list[CheckResult]:
    """Return what GKE tells of a cluster; nothing where the cluster isn't GKE's."""
    try:
        place = find_cluster(environ, context=context)
    except GkeClusterError:
        return []
    try:
        gke = Gke(place, open_client())
        cluster, pools = gke.read_cluster(), gke.list_pools()
    except (ExtraMissingError, GkeCredentialsError, NodePoolError) as error:
        return [_unseen("GKE", error)]
    where = f"{place.name} in {place.location}, project {place.project}{_describe(cluster)}"
    results = [CheckResult("GKE", Mark.OK, where), judge_pools(pools, cluster)]
    try:
        with open_session() as session:
            quotas = Compute(place, session, sleep=time.sleep).list_quotas()
    except (ExtraMissingError, GkeCredentialsError, NodePoolError) as error:
        return [*results, _unseen("quota", error)]
    return [*results, judge_quotas(quotas, region=place.region)]


def judge_pools(pools: Sequence[Pool], cluster: Cluster) -> CheckResult:
    """Tell which pools with accelerators there are; broken ones are wrong."""
    subject = "node pools"
    broken = [pool for pool in pools if pool.status == "ERROR"]
    if broken:
        seen = "; ".join(f"{pool.name} is broken: {pool.message}" for pool in broken)
        names = " ".join(pool.name for pool in broken)
        return CheckResult(subject, Mark.WRONG, seen, f"Delete it: `fray pools delete {names}`.")
    kinds = Counter(_kind(pool) for pool in pools if pool.accelerator is not None)
    if kinds:
        seen = "; ".join(f"{kind}: {format_count(count, 'pool')}" for kind, count in sorted(kinds.items()))
        return CheckResult(subject, Mark.OK, seen)
    if cluster.autopilot or cluster.auto_provisioning:
        return CheckResult(subject, Mark.OK, "none has accelerators now; GKE makes them when pods wait")
    step = "`fray pools create -f FILE` makes those that a job needs."
    return CheckResult(subject, Mark.OK, "none has accelerators", step)


def judge_quotas(quotas: Sequence[Quota], *, region: str) -> CheckResult:
    """Tell what is left of the region's quota for accelerators, as far as Compute Engine keeps it."""
    shown = [
        f"{quota.metric} {max(quota.limit - quota.usage, 0):g} of {quota.limit:g} left"
        for quota in quotas
        if quota.limit > 0 and any(part in quota.metric for part in ACCELERATORS)
    ]
    seen = "; ".join(shown) or "none for GPUs or TPUs that Compute Engine tells of"
    return CheckResult(f"quota in {region}", Mark.OK, seen)


def _kind(pool: Pool) -> str:
    return " ".join(
        filter(None, (pool.accelerator, pool.topology or pool.policy, "spot" if pool.spot else ""))
    )


def _describe(cluster: Cluster) -> str:
    if cluster.autopilot:
        return ", Autopilot"
    return ", with node auto-provisioning" if cluster.auto_provisioning else ""


def _unseen(subject: str, error: FrayError) -> CheckResult:
    return CheckResult(subject, Mark.UNKNOWN, error.message, error.next_step)
