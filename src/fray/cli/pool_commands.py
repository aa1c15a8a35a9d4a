"""`fray pools`: which pools a job needs, and GKE asked to make, show and delete them.

What is wanted and what GKE's answers mean is in `fray.nodepools`; here it is read, compared and printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import BinaryIO, Final

from fray.cli.clusters import choose_cluster, patience
from fray.cli.columns import format_columns
from fray.cli.pool_display import (
    PoolDisplay,
    count_nodes,
    describe_pool,
    describe_request,
    read_prices,
    tell_bought,
    tell_idle,
    tell_users,
)
from fray.cli.pool_options import PoolOptions
from fray.cli.requested_job import load_job
from fray.cli.streams import OutputStream
from fray.cluster.cluster_spec import KubernetesSpec
from fray.errors import (
    ClusterConfigError,
    ClusterUnreachableError,
    FrayError,
    GkeClusterError,
    GkeCredentialsError,
    InvalidRequestError,
    NodePoolError,
    PackageMissingError,
    PoolInUseError,
)
from fray.nodepools.bodies import (
    Form,
    GkeCluster,
    build_body,
    format_deletion,
    format_gcloud,
    format_policy_gcloud,
    format_terraform,
)
from fray.nodepools.cluster_objects import ask_objects
from fray.nodepools.compute import Compute, OpenSession, open_session
from fray.nodepools.examination import tell_way_in
from fray.nodepools.existing import Cluster, Pool, Provisioning, derive_provisioning, find_missing
from fray.nodepools.following import Following, PoolFate, create_pools, delete_pools
from fray.nodepools.gke import Gke, OpenClient, find_cluster, open_client
from fray.nodepools.requests import (
    PoolChoices,
    PoolRequest,
    build_pool,
    choose_for_job,
    derive_pool_demand,
    find_own_choice,
    find_zones,
)
from fray.nodepools.usage import ClusterObjects, PoolUse, derive_usage
from fray.plan.gang import derive_gang
from fray.plan.placement import NodeDemand
from fray.plan.texts import format_count
from fray.vocabulary import EXIT_FAILURE
from fray.wire.frayjob import FrayJob

__all__ = [
    "PoolShell",
    "create_missing",
    "delete_unused",
    "list_pools",
    "plan_pools",
    "print_requests",
]

MADE_BY: Final = "cli"
NOWHERE: Final = GkeCluster("PROJECT", "LOCATION", "CLUSTER")
"""Stands for a cluster that isn't known, in what is printed."""
ALL_THERE: Final = "All that the job needs is there.\n"

NO_ACCESS: Final = (
    ClusterConfigError,
    PackageMissingError,
    GkeClusterError,
    GkeCredentialsError,
    NodePoolError,
)
"""Why GKE can't be asked; plans are made without it."""

ReadObjects = Callable[[KubernetesSpec, Mapping[str, str]], ClusterObjects]


@dataclass(frozen=True)
class PoolShell:
    """The process around a command, and what leads to GKE and to the cluster."""

    environ: Mapping[str, str]
    stdin: BinaryIO
    output: OutputStream
    notes: OutputStream
    open_client: OpenClient = open_client
    open_session: OpenSession = open_session
    read_objects: ReadObjects = ask_objects
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class _Seen:
    """What GKE and the cluster reported; `usage` is None where the cluster couldn't be asked."""

    gke: Gke
    cluster: Cluster
    pools: list[Pool]
    usage: dict[str, PoolUse] | None


@dataclass(frozen=True)
class _Plan:
    """The pools for a job: those there are, and those to make."""

    demand: NodeDemand
    existing: list[Pool]
    missing: list[PoolRequest]
    provisioning: Provisioning | None = None
    broken: list[Pool] = field(default_factory=list)


# --- the commands


def plan_pools(options: PoolOptions, prices: str | None, shell: PoolShell) -> None:
    """Print what pools a job needs, and which of them exist."""
    job = _load(options, shell)
    table = read_prices(prices)
    place, seen = _look_if_possible(options, shell, "nothing is compared")
    plan = _derive_plan(job, options.choices, seen)
    write = shell.output.write
    write(f"{job.metadata.name}: {derive_gang(job.spec).describe()}\n")
    if _is_provided(plan, shell.output):
        return
    header = ["POOL", "STATE", "MACHINE TYPE", "NODES", "TOPOLOGY", "BOUGHT", "ZONES", "CHIPS"]
    rows = [header + (["PER HOUR"] if table else [])]
    rows += [describe_pool(pool, "exists", table) for pool in plan.existing]
    rows += [describe_request(pool, "missing" if seen else "needed", table) for pool in plan.missing]
    write("".join(f"{line}\n" for line in format_columns(rows, width=shell.output.width)))
    _print_policies(plan, place, shell.output)
    _tell_broken(plan, shell)
    if seen and not plan.missing:
        write(ALL_THERE)


def print_requests(options: PoolOptions, form: Form, shell: PoolShell) -> None:
    """Print what `create` would ask of GKE: as its API, as gcloud or as Terraform."""
    job = _load(options, shell)
    cluster, seen = _look_if_possible(options, shell, "all pools are printed")
    plan = _derive_plan(job, options.choices, seen)
    if _is_provided(plan, shell.notes):
        return
    if not plan.missing:
        shell.notes.write(ALL_THERE)
    _print_policies(plan, cluster, shell.output if form == "gcloud" else shell.notes)
    if form == "request":
        bodies = [
            {"parent": cluster.path, "nodePool": build_body(each, made_by=MADE_BY)} for each in plan.missing
        ]
        shell.output.write(json.dumps(bodies, indent=2) + "\n")
        return
    texts = [
        (format_gcloud if form == "gcloud" else format_terraform)(each, cluster, made_by=MADE_BY)
        for each in plan.missing
    ]
    shell.output.write("".join(f"{text}\n" for text in texts))


def create_missing(options: PoolOptions, shell: PoolShell) -> int:
    """Create the pools that a job lacks, follow those on their way, and return the exit code."""
    job = _load(options, shell)
    seen = _look(options.cluster, options.gke, shell)
    plan = _derive_plan(job, options.choices, seen)
    if _is_provided(plan, shell.notes):
        return 0
    _tell_broken(plan, shell)
    coming = [pool.name for pool in plan.existing if pool.status in ("PROVISIONING", "RECONCILING")]
    bodies = [build_body(each, made_by=MADE_BY) for each in plan.missing]
    if options.choices.policy is None:
        _ensure_policies(plan, seen.gke.cluster, shell)
    if not bodies and not coming:
        shell.notes.write(ALL_THERE)
        return 0
    try:
        with PoolDisplay(shell.notes, shell.clock) as display:
            how = Following(shell.sleep, shell.clock, display.show)
            fates = create_pools(seen.gke, bodies, how, coming=coming)
    except KeyboardInterrupt:
        shell.notes.write("\nGKE goes on with what was begun; the same command follows it.\n")
        raise
    code = _tell_fates(fates, shell)
    failed = [fate.pool for fate in fates if fate.state == "failed"]
    if failed:
        shell.notes.write(f"What is left of them goes with `fray pools delete {' '.join(failed)}`.\n")
    return code


def list_pools(cluster: str | None, gke: str | None, shell: PoolShell) -> None:
    """Print the cluster's node pools and how they are used."""
    seen = _look(cluster, gke, shell)
    now = datetime.now(UTC)
    rows = [["POOL", "ACCELERATOR", "TOPOLOGY", "NODES", "BOUGHT", "STATUS", "MADE BY", "USED BY", "IDLE"]]
    for pool in seen.pools:
        use = None if seen.usage is None else seen.usage[pool.name]
        made = pool.made_by or "-"
        accelerator = f"{pool.chips} {pool.accelerator}" if pool.accelerator else pool.machine_type
        nodes = count_nodes(pool, use)
        topology = pool.topology or pool.policy or "-"
        usage = (tell_users(use), tell_idle(use, now))
        rows.append([pool.name, accelerator, topology, nodes, tell_bought(pool), pool.status, made, *usage])
    shell.output.write("".join(f"{line}\n" for line in format_columns(rows, width=shell.output.width)))
    for pool in seen.pools:
        if pool.message:
            shell.notes.write(f"{pool.name}: {pool.problem}\n")


def delete_unused(  # noqa: PLR0913 - one parameter for each option
    names: Sequence[str],
    cluster: str | None,
    gke: str | None,
    shell: PoolShell,
    *,
    idle: bool,
    yes: bool = False,
    form: Form | None = None,
) -> int:
    """Delete pools that nobody uses, after asking, and return the exit code.

    With a `form` nothing is deleted: what would be asked of GKE is printed in that form.

    Raises:
        InvalidRequestError: Neither names nor --idle were given, or both.
        PoolInUseError: A named pool isn't there or is in use, or what is in use can't be seen.
    """
    if bool(names) == idle:
        raise InvalidRequestError("fray pools delete", "needs either names or --idle", "Give one of them.")
    seen, usage = _look_at_usage(cluster, gke, shell)
    chosen = _choose_unused(names, seen.pools, usage)
    if not chosen:
        shell.notes.write("No pool that `fray pools create` made is idle.\n")
        return 0
    if form is not None:
        shell.output.write(f"{format_deletion(chosen, seen.gke.cluster, form)}\n")
        return 0
    _show_chosen([pool for pool in seen.pools if pool.name in chosen], usage, shell.notes)
    if not yes:
        amount = format_count(len(chosen), "node pool")
        if not _confirm(f"Delete {amount} of {seen.gke.cluster.name}? [y/N] ", shell):
            shell.notes.write("Nothing was deleted.\n")
            return EXIT_FAILURE
        # The answer may have taken long: a job may run there by now.
        seen, usage = _look_at_usage(cluster, gke, shell)
        chosen = _choose_unused(chosen, seen.pools, usage)
    try:
        with PoolDisplay(shell.notes, shell.clock) as display:
            fates = delete_pools(seen.gke, chosen, Following(shell.sleep, shell.clock, display.show))
    except KeyboardInterrupt:
        shell.notes.write("\nGKE goes on with what was begun.\n")
        raise
    return _tell_fates(fates, shell)


def _choose_unused(names: Sequence[str], pools: Sequence[Pool], usage: Mapping[str, PoolUse]) -> list[str]:
    if not names:
        return [pool.name for pool in pools if pool.made_by == MADE_BY and usage[pool.name].is_idle]
    for name in names:
        if name not in usage:
            raise PoolInUseError(f"there is no pool {name!r}", "`fray pools list` shows those there are.")
        if not usage[name].is_idle:
            problem = f"{name} is used by {tell_users(usage[name])}"
            raise PoolInUseError(problem, "Stop that first; `fray pools list` shows what uses which pool.")
    return list(dict.fromkeys(names))


def _show_chosen(pools: Sequence[Pool], usage: Mapping[str, PoolUse], stream: OutputStream) -> None:
    """Show what is to be deleted: names alone don't say what is lost."""
    now = datetime.now(UTC)
    rows = [["POOL", "MACHINE TYPE", "NODES", "BOUGHT", "IDLE"]]
    for pool in pools:
        use = usage[pool.name]
        row = [pool.name, pool.machine_type, count_nodes(pool, use), tell_bought(pool), tell_idle(use, now)]
        rows.append(row)
    stream.write("".join(f"{line}\n" for line in format_columns(rows, width=stream.width)))


def _confirm(question: str, shell: PoolShell) -> bool:
    shell.notes.write(question)
    return shell.stdin.readline().strip().lower() in (b"y", b"yes")


# --- what is looked at


def _load(options: PoolOptions, shell: PoolShell) -> FrayJob:
    return load_job(options.file, stdin=shell.stdin).job


def _find_place(cluster: str | None, gke: str | None, shell: PoolShell) -> tuple[KubernetesSpec, GkeCluster]:
    """Return which cluster is meant, of Kubernetes and of GKE; nobody is asked."""
    spec = choose_cluster(cluster, None, environ=shell.environ)
    if not isinstance(spec, KubernetesSpec):
        spec = KubernetesSpec()
    place = find_cluster(shell.environ, context=spec.context) if gke is None else GkeCluster.parse(gke)
    return spec, place


def _look(cluster: str | None, gke: str | None, shell: PoolShell) -> _Seen:
    """Ask GKE for the cluster and its pools, and the cluster what uses them."""
    return _look_there(*_find_place(cluster, gke, shell), shell, named=gke is not None)


def _look_there(spec: KubernetesSpec, place: GkeCluster, shell: PoolShell, *, named: bool) -> _Seen:
    """Look at a cluster, of which GKE's part was `named` apart from the kubeconfig's."""
    found = Gke(place, shell.open_client())
    facts, pools = found.read_cluster(), found.list_pools()
    try:
        with patience(shell.notes, spec):
            objects = shell.read_objects(spec, shell.environ)
    except FrayError as error:
        shell.notes.write(f"What uses the pools isn't known: {error.message}\n")
        if facts.private_endpoint and isinstance(error, ClusterUnreachableError):
            way = tell_way_in(place, facts)
            shell.notes.write(f"The control plane of {place.name} has no public address. {way}\n")
        return _Seen(found, facts, pools, None)
    if named and not any(endpoint in objects.server for endpoint in facts.endpoints):
        shell.notes.write(
            f"What uses the pools isn't known: {objects.server} isn't the API server of {place.name}\n"
        )
        return _Seen(found, facts, pools, None)
    return _Seen(found, facts, pools, derive_usage(pools, objects))


def _look_at_usage(
    cluster: str | None, gke: str | None, shell: PoolShell
) -> tuple[_Seen, dict[str, PoolUse]]:
    """Look, and return what uses the pools too; raises `PoolInUseError` where that can't be seen."""
    seen = _look(cluster, gke, shell)
    if seen.usage is None:
        problem = "which pools are in use can't be seen"
        raise PoolInUseError(
            problem, "Let the kubeconfig lead to the same cluster (--cluster 'k8s?context=NAME')."
        )
    return seen, seen.usage


def _look_if_possible(
    options: PoolOptions, shell: PoolShell, instead: str
) -> tuple[GkeCluster, _Seen | None]:
    """Look where GKE can be asked, else say what is done `instead`; return which cluster is meant, too."""
    place = NOWHERE if options.gke is None else GkeCluster.parse(options.gke)
    try:
        spec, place = _find_place(options.cluster, options.gke, shell)
        return place, _look_there(spec, place, shell, named=options.gke is not None)
    except NO_ACCESS as error:
        if isinstance(error, NodePoolError) and error.reason == "NotFound":
            raise
        shell.notes.write(f"GKE's pools aren't known, {instead}: {error}\n")
        return place, None


def _derive_plan(job: FrayJob, choices: PoolChoices, seen: _Seen | None) -> _Plan:
    demand = derive_pool_demand(job, dynamic=choices.dynamic_slices)
    if choices.dynamic_slices and not demand.dynamic:
        problem = (
            f"is for tpu7x slices whose sides are multiples of 4, not {derive_gang(job.spec).describe()}"
        )
        raise InvalidRequestError("--dynamic-slices", problem, "Leave it out.")
    if (own := find_own_choice(job)) is not None:
        problem = f"names {own[1]}, which decides about the nodes"
        raise InvalidRequestError(own[0], problem, "Leave it out for pools that Fray derives.")
    choices = choose_for_job(job, choices)
    if seen is None:
        request = build_pool(demand, choices)
        return _Plan(demand, [], find_missing(request, demand, [], used_nodes={})[1])
    if not choices.zones and not demand.zones and (demand.own_pools or demand.regions):
        choices = replace(choices, zones=seen.cluster.zones)
    _check_region(find_zones(demand, choices), seen.gke.cluster)
    provisioning = derive_provisioning(seen.cluster, demand)
    if provisioning is not None and not provisioning.limitation:
        return _Plan(demand, [], [], provisioning)
    request = build_pool(demand, choices)
    used = {name: _count_taken(use, job) for name, use in (seen.usage or {}).items()}
    existing, missing = find_missing(request, demand, seen.pools, used_nodes=used)
    broken = [pool for pool in seen.pools if pool.made_by == MADE_BY and pool.status == "ERROR"]
    return _Plan(demand, existing, missing, provisioning, broken)


def _check_region(zones: Sequence[str], cluster: GkeCluster) -> None:
    """Raise `InvalidRequestError` for a zone of another region than the cluster's, which GKE refuses."""
    for zone in zones:
        if zone.rpartition("-")[0] != cluster.region:
            problem = f"is {zone}, and {cluster.name} is in {cluster.region}"
            raise InvalidRequestError("--zone", problem, "Name a zone of that region, or another cluster.")


def _count_taken(use: PoolUse, job: FrayJob) -> int:
    """Count the nodes of a pool that aren't for this job, whose own count as there; a slice has one user."""
    users = {*use.jobs, *filter(None, (use.kept_for,))}
    # A file that names no namespace may be meant for any.
    own = "/".join(["", *filter(None, (job.metadata.namespace, job.metadata.name))])
    if not use.others and all(f"/{name}".endswith(own) for name in users):
        return 0
    return max(use.used_nodes, 1)


def _ensure_policies(plan: _Plan, cluster: GkeCluster, shell: PoolShell) -> None:
    """Make the workload policies that new pools name; one that the user named is left as it is."""
    policies = {each.policy for each in plan.missing if each.policy is not None}
    for policy in policies:
        with shell.open_session() as session:
            made = Compute(cluster, session, sleep=shell.sleep).ensure_policy(policy)
        if made:
            shell.notes.write(f"workload policy {policy.name}: made\n")


# --- what is said


def _is_provided(plan: _Plan, stream: OutputStream) -> bool:
    """Say whether GKE makes the nodes itself, and return whether nothing needs to be created then."""
    provisioning = plan.provisioning
    if provisioning is None:
        return False
    if provisioning.limitation:
        stream.write(f"{provisioning.sentence}; but {provisioning.limitation}. {provisioning.remedy}\n")
        return False
    stream.write(f"{provisioning.sentence}: nothing needs to be created.\n")
    return True


def _print_policies(plan: _Plan, cluster: GkeCluster, stream: OutputStream) -> None:
    for policy in dict.fromkeys(each.policy for each in plan.missing if each.policy is not None):
        stream.write(f"# the workload policy, unless it is there:\n{format_policy_gcloud(policy, cluster)}\n")


def _tell_broken(plan: _Plan, shell: PoolShell) -> None:
    for pool in plan.broken:
        shell.notes.write(
            f"{pool.name} is broken: {pool.problem}. `fray pools delete {pool.name}` removes it.\n"
        )


def _tell_fates(fates: Sequence[PoolFate], shell: PoolShell) -> int:
    errors: list[NodePoolError] = [fate.error for fate in fates if fate.error is not None]
    for error in errors:
        shell.notes.write(f"error: {error}\n")
    return EXIT_FAILURE if errors else 0
