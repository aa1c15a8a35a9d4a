"""What `fray doctor` says of a GKE cluster: its node pools, and what its project allows.

Only for clusters whose kubeconfig entry names them as gcloud does. Who runs jobs needs no access to GKE:
what can't be asked is unknown, and no fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fray.cluster.answers import CheckResult, Mark
from fray.errors import (
    FrayError,
    GkeClusterError,
    GkeCredentialsError,
    NodePoolError,
    PackageMissingError,
)
from fray.nodepools.bodies import GkeCluster
from fray.nodepools.compute import Compute, OpenSession, Quota, open_session
from fray.nodepools.existing import Cluster, Pool, derive_provisioning, find_missing
from fray.nodepools.gke import Gke, OpenClient, find_cluster, open_client
from fray.nodepools.project import APIS, PERMISSIONS, FamilyQuota, Project
from fray.nodepools.requests import (
    CUBE_POLICY,
    PoolChoices,
    build_pool,
    choose_for_job,
    derive_pool_demand,
    find_own_choice,
    find_zones,
)
from fray.plan.placement import derive_demand
from fray.plan.texts import format_count
from fray.wire.frayjob import FrayJob

__all__ = [
    "examine_gke",
    "judge_apis",
    "judge_families",
    "judge_job",
    "judge_permissions",
    "judge_pools",
    "judge_quotas",
    "tell_way_in",
]

ACCELERATORS = ("GPUS", "TPU")
"""Parts of the names of quotas that are about accelerators."""


def examine_gke(
    environ: Mapping[str, str],
    *,
    context: str | None = None,
    job: FrayJob | None = None,
    open_client: OpenClient = open_client,
    open_session: OpenSession = open_session,
) -> list[CheckResult]:
    """Return what GKE and its project tell of a cluster, and whether it has the pools of a job.

    Where the cluster isn't GKE's there is nothing but what the job needs.
    """
    try:
        place = find_cluster(environ, context=context)
    except GkeClusterError:
        return [] if job is None else [_needed(job, "compare with the accelerators above")]
    return [*_examine_cluster(place, job, open_client), *_examine_project(place, open_session)]


def _examine_cluster(place: GkeCluster, job: FrayJob | None, open_client: OpenClient) -> list[CheckResult]:
    try:
        gke = Gke(place, open_client())
        cluster, pools = gke.read_cluster(), gke.list_pools()
    except (PackageMissingError, GkeCredentialsError, NodePoolError) as error:
        unseen = _unseen("GKE", error)
        return [unseen] if job is None else [unseen, _needed(job, "GKE can't be asked for its pools")]
    where = f"{place.name} in {place.location}, project {place.project}{_describe(cluster)}"
    results = [
        CheckResult("GKE", Mark.OK, where),
        *_judge_privacy(place, cluster),
        judge_pools(pools, cluster),
    ]
    if job is not None:
        results.append(judge_job(job, pools, cluster))
    return results


def _judge_privacy(place: GkeCluster, cluster: Cluster) -> list[CheckResult]:
    """Tell what must be prepared where nodes or the control plane have no public addresses."""
    results = []
    if cluster.private_endpoint:
        seen = "it has no public address"
        results.append(CheckResult("control plane", Mark.OK, seen, tell_way_in(place, cluster)))
    if cluster.private_nodes:
        seen = "new ones have no public addresses; pools of Fray's are like that too"
        step = (
            "Images must come from Artifact Registry (by Private Google Access) or through Cloud NAT, and a "
            "firewall rule must let the control plane reach JobSet's webhook: port 9443 of its pods."
        )
        results.append(CheckResult("nodes", Mark.OK, seen, step))
    return results


def tell_way_in(place: GkeCluster, cluster: Cluster) -> str:
    """Return how a control plane without a public address is reached.

    https://docs.cloud.google.com/sdk/gcloud/reference/container/clusters/get-credentials
    """
    command = f"gcloud container clusters get-credentials {place.name} --location={place.location}"
    command += f" --project={place.project}"
    if cluster.dns_endpoint:
        return f"Reach it by its name, from anywhere: `{command} --dns-endpoint`."
    return f"Reach it from its own network, or one that is connected with it: `{command} --internal-ip`."


def _examine_project(place: GkeCluster, open_session: OpenSession) -> list[CheckResult]:
    """Return what the project of a cluster allows; each question may be refused by itself."""

    def ask(subject: str, question: Callable[[], CheckResult]) -> CheckResult:
        try:
            return question()
        except (GkeCredentialsError, NodePoolError) as error:
            return _unseen(subject, error)

    try:
        with open_session() as session:
            project, compute = Project(place, session), Compute(place, session, sleep=time.sleep)
            region = place.region
            return [
                ask("APIs", lambda: judge_apis(project.list_enabled_apis(), project=place.project)),
                ask(
                    "permissions",
                    lambda: judge_permissions(project.list_permissions(), project=place.project),
                ),
                ask("quota", lambda: judge_quotas(compute.list_quotas(), region=region)),
                ask("quota by family", lambda: judge_families(project.list_family_quotas(), region=region)),
            ]
    except (PackageMissingError, GkeCredentialsError) as error:
        return [_unseen("APIs, permissions, quota", error)]


def judge_apis(enabled: set[str], *, project: str) -> CheckResult:
    """Tell which of the APIs that clusters, pools and images need are off; that is wrong."""
    off = [api for api in APIS if api not in enabled]
    if not off:
        return CheckResult("APIs", Mark.OK, f"on: {', '.join(APIS)}")
    seen = "; ".join(f"{api} is off ({APIS[api]})" for api in off)
    step = f"Enable them: `gcloud services enable {' '.join(off)} --project={project}`."
    return CheckResult("APIs", Mark.WRONG, seen, step)


def judge_permissions(held: set[str], *, project: str) -> CheckResult:
    """Tell which permissions for `fray pools` an account lacks; who only runs jobs needs none."""
    lacking = [each for each in PERMISSIONS if each not in held]
    if not lacking:
        return CheckResult("permissions", Mark.OK, f"{', '.join(PERMISSIONS)} in the project")
    step = (
        f"Only `fray pools` needs them: `gcloud projects add-iam-policy-binding {project} "
        "--member=user:EMAIL --role=roles/container.clusterAdmin` (for compute: "
        "`--role=roles/compute.instanceAdmin.v1`)."
    )
    return CheckResult("permissions", Mark.OK, f"the project doesn't grant {', '.join(lacking)}", step)


def judge_pools(pools: Sequence[Pool], cluster: Cluster) -> CheckResult:
    """Tell which pools with accelerators there are; broken ones are wrong."""
    subject = "node pools"
    broken = [pool for pool in pools if pool.status == "ERROR"]
    if broken:
        seen = "; ".join(f"{pool.name} is broken: {pool.problem}" for pool in broken)
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


def judge_job(job: FrayJob, pools: Sequence[Pool], cluster: Cluster) -> CheckResult:
    """Tell whether a cluster has a job's pools, no matter who uses them now; missing ones are wrong."""
    subject = f"pools for {job.metadata.name}"
    demand = derive_pool_demand(job, dynamic=any(pool.policy == CUBE_POLICY for pool in pools))
    if (own := find_own_choice(job)) is not None:
        return CheckResult(subject, Mark.OK, f"{own[0]} names {own[1]}, which decides")
    if demand.accelerator is None:
        return CheckResult(subject, Mark.OK, f"it needs no accelerator, but {demand.describe()}")
    # GPUs of N1 machines have no machine type of their own: that of a pool which has such ones will do.
    alike = (pool for pool in pools if (pool.accelerator, pool.chips) == (demand.accelerator, demand.chips))
    machine_type = None if demand.topology else next((pool.machine_type for pool in alike), None)
    chosen = PoolChoices(zones=cluster.zones, machine_type=machine_type)
    choices = choose_for_job(job, chosen)
    provisioning = derive_provisioning(cluster, demand)
    try:
        zones = find_zones(demand, choices)
        if provisioning is not None and not provisioning.limitation:
            return CheckResult(subject, Mark.OK, provisioning.sentence)
        # A slice is in one zone; which one is left open here.
        request = build_pool(demand, replace(choices, zones=zones[:1]))
    except FrayError as error:
        return CheckResult(subject, Mark.WRONG, error.message, error.next_step)
    existing, missing = find_missing(replace(request, zones=zones), demand, pools, used_nodes={})
    if not missing:
        return CheckResult(subject, Mark.OK, f"{', '.join(pool.name for pool in existing)} can hold it")
    if provisioning is not None:
        return CheckResult(subject, Mark.WRONG, provisioning.limitation, provisioning.remedy)
    lacking = f"missing: {format_count(len(missing), 'pool')} of {request.machine_type}"
    step = (
        "`fray pools plan -f FILE` shows them, `fray pools create -f FILE` makes them; or the operator does."
    )
    return CheckResult(subject, Mark.WRONG, f"the job needs {derive_demand(job).describe()}; {lacking}", step)


def judge_quotas(quotas: Sequence[Quota], *, region: str) -> CheckResult:
    """Tell what is left of the region's quota for accelerators, as far as Compute Engine keeps it."""
    shown = [
        f"{quota.metric} {max(quota.limit - quota.usage, 0):g} of {quota.limit:g} left"
        for quota in quotas
        if quota.limit > 0 and any(part in quota.metric for part in ACCELERATORS)
    ]
    seen = "; ".join(shown) or "none for GPUs or TPUs that Compute Engine tells of"
    return CheckResult(f"quota in {region}", Mark.OK, seen)


def judge_families(quotas: Sequence[FamilyQuota], *, region: str) -> CheckResult:
    """Tell the region's limits for newer accelerators, which Compute Engine keeps by family."""
    shown = [f"{each.family} {each.limit if each.limit >= 0 else 'without limit'}" for each in quotas]
    seen = f"{'; '.join(shown)}: chips or GPUs, used ones included" if shown else "none"
    return CheckResult(f"quota by family in {region}", Mark.OK, seen)


def _needed(job: FrayJob, why: str) -> CheckResult:
    reason = f"the job needs {derive_demand(job).describe()}; {why}"
    return CheckResult(f"pools for {job.metadata.name}", Mark.UNKNOWN, reason)


def _kind(pool: Pool) -> str:
    return " ".join(
        filter(None, (pool.accelerator, pool.topology or pool.policy, "spot" if pool.spot else ""))
    )


def _describe(cluster: Cluster) -> str:
    if cluster.autopilot:
        return ", Autopilot"
    return ", with node auto-provisioning" if cluster.auto_provisioning else ""


def _unseen(subject: str, error: FrayError) -> CheckResult:
    seen = error.sentence if isinstance(error, NodePoolError) else error.message
    return CheckResult(subject, Mark.UNKNOWN, seen, error.next_step)
