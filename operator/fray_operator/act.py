"""What a pass does about the children of FrayJobs, each call fenced by the Lease.

Every call is idempotent: a pass that died half-way is simply done again. A child is created once; a JobSet
is never changed, but for the number of its attempt while Kueue holds it. What belongs to somebody else is
never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import NotFoundError
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, NETWORK_POLICIES, Resource
from fray.kube.topology import read_topology
from fray.plan.children import Child, build_children, build_workers, read_role
from fray.plan.kueue import build_renumbered
from fray.plan.observation import Waiting
from fray.plan.pod_observation import is_ending
from fray.plan.settings import PlanSettings
from fray.plan.worker_observation import read_worker_job
from fray.plan.workers import RemoveWorkers, StartWorkers, WorkerStep
from fray.vocabulary import ANNOTATION_STOPPED_BECAUSE, Role
from fray.wire.frayjob import FrayJob
from fray_operator.lease import Lease
from fray_operator.ownership import describe_foreign, is_owned
from fray_operator.writer import create_child, delete_child, fetch

__all__ = ["RESOURCES", "Actor"]

logger = logging.getLogger(__name__)

RESOURCES: Final[Mapping[Role, Resource]] = {
    Role.HOST: JOBSETS,
    Role.WORKER: JOBS,
    Role.NETWORK: NETWORK_POLICIES,
}
"""Where the children of each role live."""


class Actor:
    """Carries out what was decided about FrayJobs; `remember` gets each child that was written."""

    def __init__(
        self,
        api: KubeApi,
        lease: Lease,
        *,
        settings: PlanSettings,
        remember: Callable[[Role, Manifest], None],
    ) -> None:
        self._api, self._lease, self._settings = api, lease, settings
        self._remember = remember

    async def create_attempt(self, job: FrayJob, number: int) -> Waiting | None:
        """Create the children of an attempt; return why one was refused, and those after it not tried.

        Workers hold up no gang: a later step tries to create them again.
        """
        topology = await read_topology(self._api, job)
        for sentence in topology.unread:
            logger.warning("attempt %d of %s: %s", number, job.metadata.name, sentence)
        for child in build_children(job, attempt=number, settings=self._settings, topology=topology):
            refusal = await self._create_child(job, child)
            if refusal is not None and child.role is not Role.WORKER:
                return refusal
        return None

    async def carry_out(self, job: FrayJob, step: WorkerStep, workers: Sequence[Manifest]) -> Waiting | None:
        """Take a step of the current attempt's workers, which are these Jobs; return why it was refused.

        Raises `ConflictError` when a Job changes at the same moment.
        """
        if isinstance(step, StartWorkers):
            number = job.status.attempts[-1].number
            return await self._create_child(
                job, build_workers(job, step, attempt=number, settings=self._settings)
            )
        known = next(one for one in workers if one["metadata"]["name"] == step.name)
        if isinstance(step, RemoveWorkers):
            await self.delete_child(known)
        else:
            await self._resize(known, step.completions)
        return None

    async def _resize(self, known: Manifest, completions: int) -> None:
        """Give a Job of workers another size, unless more of its workers have ended than is known here."""
        metadata = known["metadata"]
        try:
            found = await self._api.get(JOBS, metadata["name"], namespace=metadata["namespace"])
            seen, before = read_worker_job(found), read_worker_job(known)
            if (seen.completions, seen.complete) != (before.completions, before.complete):
                self._remember(Role.WORKER, found)
                return
            self._lease.require()
            size = {"completions": completions, "parallelism": completions}
            resized = await self._api.replace(JOBS, {**found, "spec": {**found["spec"], **size}})
        except NotFoundError:
            logger.info("Job %s is gone: its workers keep no size", metadata["name"])
            return
        self._remember(Role.WORKER, resized)

    async def _create_child(self, job: FrayJob, child: Child) -> Waiting | None:
        """Create a child, or adopt it if it is this job's; return why it was refused."""

        def find_stranger(found: Manifest) -> Waiting | None:
            return None if is_owned(found, job) else describe_foreign(found, job, kind=child.row.kind)

        resource = RESOURCES[child.role]
        made = await create_child(
            self._api, self._lease, resource, child.manifest, find_stranger=find_stranger
        )
        if isinstance(made, Waiting):
            return made
        self._remember(child.role, made)
        return None

    async def renumber(self, jobset: Manifest, number: int) -> None:
        """Have a suspended JobSet make its pods as those of another attempt, unless it was resumed since.

        Raises `ConflictError` when it changes at the same moment.
        """
        metadata = jobset["metadata"]
        found = await self._api.get(JOBSETS, metadata["name"], namespace=metadata["namespace"])
        renumbered = build_renumbered(found, number)
        if renumbered is None or found["metadata"]["uid"] != metadata["uid"]:
            self._remember(Role.HOST, found)
            return
        self._lease.require()
        self._remember(Role.HOST, await self._api.replace(JOBSETS, renumbered))

    async def fetch(self, body: Manifest) -> Manifest | None:
        """Return the job in `body` as it is on the server, None when it exists no more."""
        return await fetch(self._api, FRAYJOBS, body["metadata"])

    async def delete_child(self, child: Manifest) -> None:
        """Delete a child, unless it is being deleted."""
        if not is_ending(child):
            await delete_child(self._api, self._lease, RESOURCES[read_role(child)], child)

    async def stop(self, body: Manifest, *, because: str) -> Manifest:
        """Set `spec.stopped` of the job in `body`; return it as it is now.

        Raises `ConflictError` when the object has changed since `body` was read.
        """
        self._lease.require()
        metadata = body["metadata"]
        annotations = {**metadata.get("annotations", {}), ANNOTATION_STOPPED_BECAUSE: because}
        stopped = {
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**body["spec"], "stopped": True},
        }
        return await self._api.replace(FRAYJOBS, {**body, **stopped})
