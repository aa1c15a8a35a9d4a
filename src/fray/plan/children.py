"""The objects that a FrayJob has in a cluster: one row for each role says what it is, and how long it stays.

All of them are created once, adopted when they exist already, found again by their labels and deleted by
the same code; only here does it stand which there are.

When an attempt ends, a JobSet that has ended stays, with the logs of what failed. One that hasn't would run
on, or make hosts anew, under a job that has long ended: it is never left behind. What serves later attempts
too stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from fray.plan.gang_placement import NOTHING_READ, ClusterTopology
from fray.plan.jobset import build_attempt
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Manifest, read_label
from fray.plan.network_policy import build_network_policy
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import is_jobset_finished
from fray.plan.reasons import REASONS
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.plan.workers import StartWorkers, derive_wanted, has_workers
from fray.vocabulary import LABEL_ROLE, Reason, Role
from fray.wire.frayjob import FrayJob

__all__ = [
    "ROLES",
    "Child",
    "RoleRow",
    "build_children",
    "build_workers",
    "find_removed",
    "is_left_to_itself",
    "read_role",
]

Object = TypeVar("Object", bound=Manifest)

PATIENCE = timedelta(seconds=60)
"""How long after its hosts ended a JobSet may take to say so; usually it takes less than a second."""


@dataclass(frozen=True)
class RoleRow:
    """What all objects of a role have in common."""

    kind: str
    """Their kind."""
    outlives_attempt: bool = False
    """Whether one serves all attempts of its job, and goes with the job."""


ROLES: Final[Mapping[Role, RoleRow]] = {
    Role.HOST: RoleRow("JobSet"),
    Role.WORKER: RoleRow("Job"),
    Role.NETWORK: RoleRow("NetworkPolicy", outlives_attempt=True),
}


@dataclass(frozen=True)
class Child:
    """One object of a job: its role, and its manifest."""

    role: Role
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.manifest["metadata"]["name"])

    @property
    def row(self) -> RoleRow:
        """What it has in common with all of its role."""
        return ROLES[self.role]


def build_children(
    job: FrayJob, *, attempt: int, settings: PlanSettings, topology: ClusterTopology = NOTHING_READ
) -> tuple[Child, ...]:
    """Return the objects that attempt number `attempt` begins with, in the order in which they are created.

    Workers of a job that waits in a queue are made once its gang is out of it. Raises what `build_attempt`
    raises.
    """
    plan = build_attempt(job, attempt=attempt, settings=settings, topology=topology)
    hosts = Child(Role.HOST, plan.jobset)
    if not has_workers(job.spec):
        return (hosts,)
    # Before any pod that listens.
    guarded = (Child(Role.NETWORK, build_network_policy(job)), hosts)
    wanted = derive_wanted(job.spec)
    if not wanted or derive_queue(job).name is not None:
        return guarded
    return *guarded, build_workers(job, StartWorkers(1, wanted), attempt=attempt, settings=settings)


def build_workers(job: FrayJob, step: StartWorkers, *, attempt: int, settings: PlanSettings) -> Child:
    """Return the Job of workers that is to be started."""
    plan = build_worker_job(
        job, attempt=attempt, generation=step.generation, count=step.count, settings=settings
    )
    return Child(Role.WORKER, plan.manifest)


def read_role(manifest: Manifest) -> Role:
    """Return an object's role; one that doesn't say belongs to the gang, as all once did."""
    role = read_label(manifest, LABEL_ROLE)
    return Role(role) if role in list(Role) else Role.HOST


def find_removed(
    reason: Reason, children: Iterable[Object], observed: GangObservation | None, *, now: datetime
) -> list[Object]:
    """Return which children of an attempt that is ending are to be deleted, for it to end."""

    def stays(child: Object) -> bool:
        role = read_role(child)
        if ROLES[role].outlives_attempt:
            return True
        if role is Role.HOST:
            return observed is not None and is_left_to_itself(reason, child, observed, now=now)
        return is_jobset_finished(child) is not None

    return [child for child in children if not stays(child)]


def is_left_to_itself(reason: Reason, jobset: Manifest, observed: GangObservation, *, now: datetime) -> bool:
    """Return whether the JobSet of an attempt that is ending has ended, or will without being deleted.

    It won't when somebody suspends it, when the host that failed is no longer there (its Job was deleted,
    and JobSet makes another), or when another container with accelerators keeps a pod alive.
    """
    if not REASONS[reason].ends_by_itself:
        return False
    if is_jobset_finished(jobset) is not None:
        return True
    if observed.suspended:
        return False
    failed = [host.ended_at for host in observed.hosts if host.failed and host.ended_at]
    if failed:
        return now < min(failed) + PATIENCE
    ends = [host.ended_at for host in observed.hosts if host.ended_at is not None]
    return observed.succeeded and bool(ends) and now < max(ends) + PATIENCE
