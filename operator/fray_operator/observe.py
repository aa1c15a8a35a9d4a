"""What there is in the cluster about one FrayJob: the read side of a pass.

Caches answer almost everything. The server is asked only about a job that is stuck: for what controllers and
kubelets complained about; about one that is suspended: for Kueue's words; about one that failed and doesn't
tell why: for its Jobs, and for nodes where their cache may be behind; and whether one is there at all that
should own a JobSet and doesn't. What it means is `fray.plan`'s to say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fray.accelerators import LABEL_NODE_POOL
from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError
from fray.kube.resources import FRAYJOBS, JOBS
from fray.plan.complaints import (
    CREATE_FAILURES,
    PATIENCE_SECONDS,
    VOLUME_FAILURES,
    derive_pause,
    derive_volume_waiting,
    find_held,
    list_create_failures,
)
from fray.plan.gang import derive_gang
from fray.plan.job_evidence import is_unexplained, with_job_evidence
from fray.plan.kueue import (
    derive_deactivation,
    derive_queue_waiting,
    is_misnumbered,
    is_queued,
)
from fray.plan.lifecycle import describe_stop
from fray.plan.names import build_jobset_name
from fray.plan.node_evidence import Nodes, derive_next_look, needs_nodes, with_node_evidence
from fray.plan.node_faults import is_infrastructure_fault, with_node_pools
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Suspension, Waiting
from fray.plan.placement import derive_demand
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.reasons import get_row
from fray.plan.scheduling import derive_waiting
from fray.plan.settings import RetryPolicy
from fray.plan.timestamps import parse_time
from fray.plan.verdict import derive_cause
from fray.plan.workers import has_workers
from fray.vocabulary import (
    LABEL_JOB,
    LABEL_JOBSET_UID,
    Reason,
    Role,
)
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus
from fray_operator.informer import Informer, JobKey, trim_attempts_job
from fray_operator.list_watch import is_controlled_by
from fray_operator.node_pools import NodePools
from fray_operator.nodes import NodeInformer
from fray_operator.ownership import (
    Leftovers,
    describe_foreign,
    find_leftovers,
    find_orphans,
    find_unrecorded,
    get_job_uid,
    is_child_of,
    is_inherited,
    is_labelled,
    is_made_for,
    is_of_attempt,
    is_overdue,
    is_owned,
)
from fray_operator.pods import PodInformer
from fray_operator.shared_answers import WORKLOADS_SECONDS, Workloads, share_complaints
from fray_operator.worker_jobs import ObservedWorkers, WorkerJobs

__all__ = ["Observed", "Observer"]

logger = logging.getLogger(__name__)

DEFAULT_POLICY = RetryPolicy()
DEACTIVATED_SECONDS = 60.0
"""How often a job is looked at whose Workload was sent back: no event tells what becomes of that."""
UNWATCHED_SECONDS = 15.0
"""How often a JobSet is looked at that lost the label which the watch selects by."""


NO_WORKERS = ObservedWorkers()


@dataclass(frozen=True)
class Observed:
    """The current attempt's JobSet and gang; both None where there is no attempt or no JobSet."""

    jobset: Manifest | None = None
    gang: GangObservation | None = None
    foreign: Waiting | None = None
    """Set when an object of the attempt's name belongs to somebody else."""
    look_again: float | None = None
    """Seconds after which to observe again although nothing changed."""

    workers: ObservedWorkers = NO_WORKERS

    @property
    def children(self) -> tuple[Manifest, ...]:
        """All that there is of the attempt."""
        workers = self.workers.manifests
        return workers if self.jobset is None else (self.jobset, *workers)


class Observer:
    """Reads about FrayJobs from the caches, and from the server where they can't answer."""

    def __init__(
        self,
        api: KubeApi,
        *,
        children: Mapping[Role, Callable[[str], Informer]],
        pods: Callable[[str], PodInformer],
        nodes: NodeInformer | None,
        policy: RetryPolicy = DEFAULT_POLICY,
        node_pools: NodePools | None = None,
    ) -> None:
        self._api, self._children, self._pods = api, children, pods
        self._jobsets = children[Role.HOST]
        self._nodes, self._policy, self._node_pools = nodes, policy, node_pools
        self._create_failures = share_complaints(api, CREATE_FAILURES)
        self._workloads = Workloads(api)
        self._workers = WorkerJobs(
            api, children[Role.WORKER], view_nodes=lambda: self._view_nodes(judging=True)
        )
        self._volume_failures = share_complaints(api, VOLUME_FAILURES)

    def find_unrecorded(self, job: FrayJob) -> AttemptStatus | None:
        """Return the attempt whose hosts there are although the job's status doesn't tell of it."""
        namespace = job.metadata.namespace or ""
        return find_unrecorded(job, self._jobsets(namespace).of_job((namespace, job.metadata.name)))

    async def find_job(self, key: JobKey) -> Manifest | None:
        """Ask the server for the FrayJob of this name."""
        try:
            return await self._api.get(FRAYJOBS, key[1], namespace=key[0])
        except NotFoundError:
            return None

    def list_children(self, key: JobKey) -> list[Manifest]:
        """Return all children of watched roles that carry a job's name, as the caches know them."""
        return [child for cache in self._children.values() for child in cache(key[0]).of_job(key)]

    def has_succeeded(self, key: JobKey, child: Manifest) -> bool:
        """Return whether a child of a job has hosts and all have ended well, as the cache knows them."""
        pods = _select_pods(self._pods(key[0]).of_job(key), child)
        return bool(pods) and all(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)

    async def fetch_child(self, role: Role, namespace: str, name: str) -> Manifest | None:
        """Ask the server itself: the cache may not have seen a child whose creation was cut off."""
        cache = self._children[role](namespace)
        known = cache.get(namespace, name)
        try:
            child = await self._api.get(cache.resource, name, namespace=namespace)
        except NotFoundError:
            if known is not None and not is_labelled(known):
                cache.forget(known)
            return None
        cache.remember(child)
        return child

    async def observe(self, job: FrayJob, *, now: datetime) -> Observed:
        """Return what there is of the job's current attempt."""
        observed = await self._observe_hosts(job, now=now)
        attempt = job.status.attempts[-1] if job.status.attempts else None
        if attempt is None or attempt.verdict is not None or not has_workers(job.spec):
            return observed
        workers = await self._workers.observe(job, attempt.number, now=now)
        looks = [observed.look_again, workers.look_again]
        return replace(observed, workers=workers, look_again=_earliest(looks))

    async def _observe_hosts(self, job: FrayJob, *, now: datetime) -> Observed:
        """Return what there is of the hosts of the job's current attempt."""
        attempt = job.status.attempts[-1] if job.status.attempts else None
        namespace = job.metadata.namespace or ""
        if attempt is None or attempt.verdict is not None or attempt.job_set is None:
            self.forget_gone((namespace, job.metadata.name))
            return Observed()
        of_job = self._pods(namespace).of_job((namespace, job.metadata.name))
        jobset = await self._look_up_jobset(job, attempt, attempt.job_set, pods=of_job)
        if jobset is None:
            return Observed()
        if not is_owned(jobset, job):
            return Observed(foreign=describe_foreign(jobset, job))
        if not (is_child_of(jobset, attempt.number) or is_inherited(jobset, job)):
            return Observed()
        pods = _select_pods(of_job, jobset)
        shape = derive_gang(job.spec)
        gang = derive_gang_observation(shape, jobset, pods, gone=self._gone_of(jobset))
        jobset, gang = await self._make_sure(job, attempt, jobset, gang)
        gang = replace(gang, misnumbered=is_misnumbered(jobset, attempt.number))
        gang = await self._with_evidence(attempt, gang, now=now)
        if shape.multi_host_slices:
            gang = await self._with_node_pools(gang)
        if gang.suspended:
            return await self._observe_suspended(job, jobset, gang, now=now)
        looks = [derive_next_look(gang, now=now)]
        if not any(host.pending for host in gang.hosts):
            looks.append(None if is_labelled(jobset) else UNWATCHED_SECONDS)
            return Observed(jobset, gang, look_again=_earliest(looks))
        # One that was suspended when it ended, or was deleted, makes no pods either.
        missing = len(gang.hosts) > len(pods) and not jobset["spec"].get("suspend")
        age = (now - parse_time(jobset["metadata"]["creationTimestamp"])).total_seconds()
        ask = missing and age >= PATIENCE_SECONDS
        waiting = await self._explain(job, jobset, pods, ask=ask, now=now)
        if missing or waiting is not None:
            looks.append(derive_pause(age / 4))
        elif any(host.phase is HostPhase.STARTING and host.node for host in gang.hosts):
            # A volume that can't be mounted changes nothing about its pod, so no event brings the next pass.
            # More rarely: most of these only pull their images.
            looks.append(derive_pause(age / 2))
        return Observed(jobset, replace(gang, waiting=waiting), look_again=_earliest(looks))

    async def _observe_suspended(
        self, job: FrayJob, jobset: Manifest, gang: GangObservation, *, now: datetime
    ) -> Observed:
        """Return an attempt whose JobSet somebody else has suspended: in its queue, or sent back into it."""
        attempt, metadata = job.status.attempts[-1], jobset["metadata"]
        if attempt.reason not in (None, Reason.SUSPENDED) and get_row(attempt.reason).certain:
            return Observed(jobset, gang)
        if gang.begun or attempt.reason is not None or attempt.running_time is not None:
            workload = await self._workloads.fetch(jobset)
            waiting = derive_deactivation(workload)
            requeued = workload is not None and waiting is None and is_queued(jobset)
            eviction = workload.eviction if workload is not None else None
            gang = replace(gang, suspension=Suspension(eviction, requeued), waiting=waiting)
            known = self._pods(metadata["namespace"]).of_job((metadata["namespace"], job.metadata.name))
            gone = requeued and not _select_pods(known, jobset)
            if gone and attempt.reason is not None and not await self._list_pods(jobset):
                # They count no more: what comes now is the next attempt's.
                self.forget_gone((metadata["namespace"], job.metadata.name))
                hosts = derive_gang_observation(derive_gang(job.spec), jobset, ()).hosts
                return Observed(jobset, replace(gang, hosts=hosts))
            # That it is activated, or removed, changes nothing that is watched.
            look = None if workload is None else DEACTIVATED_SECONDS
            return Observed(jobset, gang, look_again=0.0 if gone and attempt.reason is None else look)
        age = (now - parse_time(metadata["creationTimestamp"])).total_seconds()
        workloads = await self._workloads.get(metadata["namespace"])
        workload = workloads.get(metadata["uid"]) if workloads is not None else None
        missing = workloads is not None and workload is None and age >= PATIENCE_SECONDS + WORKLOADS_SECONDS
        waiting = derive_queue_waiting(jobset, workload, missing=missing)
        gang = replace(gang, suspension=Suspension(requeued=workload is not None and is_queued(jobset)))
        # When it is admitted the JobSet changes, which brings the next pass; what keeps it waiting doesn't.
        look_again = derive_pause(age / 4)
        return Observed(jobset, replace(gang, waiting=waiting), look_again=look_again)

    def forget_gone(self, key: JobKey) -> None:
        """Forget what pods of a job showed last that are gone: there is no verdict to be found any more."""
        self._pods(key[0]).forget_gone(key)

    async def find_leftovers(self, job: FrayJob, number: int, *, now: datetime) -> Leftovers | None:
        """Return what must be gone before this attempt, which has no hosts yet, may start.

        Nodes are looked at only when a pod has outlived its deletion.
        """
        namespace = job.metadata.namespace or ""
        key = namespace, job.metadata.name
        for jobset in self._jobsets(namespace).of_job(key):
            if not is_labelled(jobset):
                # No watch tells of its end.
                await self.fetch_child(Role.HOST, namespace, jobset["metadata"]["name"])
        jobsets, known = self._jobsets(namespace).of_job(key), self._pods(namespace)
        pods = known.of_job(key) + known.held_of_job(key)
        overdue = any(is_overdue(pod, now=now) for pod in pods)
        nodes = await self._view_nodes(judging=True) if overdue else Nodes()
        return find_leftovers(job, number, jobsets=jobsets, pods=pods, now=now, nodes=nodes)

    async def find_orphans(self, key: JobKey, *, living: Callable[[str], bool]) -> list[Manifest]:
        """Return what is left of deleted FrayJobs of this name, which nobody owns and so nobody collects.

        `living` says whether a FrayJob of a uid is known to exist. Others may: that of a finished job isn't
        remembered. So the server is asked, when there is such a child at all.
        """
        left = find_orphans(self.list_children(key), living=living)
        if not left:
            return []
        job = await self.find_job(key)
        return [child for child in left if job is None or get_job_uid(child) != job["metadata"]["uid"]]

    async def _look_up_jobset(
        self, job: FrayJob, attempt: AttemptStatus, name: str, *, pods: Sequence[Manifest]
    ) -> Manifest | None:
        """Return the attempt's JobSet, or what has its name; the server is asked if the cache may be old."""
        namespace = job.metadata.namespace or ""
        jobset = self._find_jobset(job, attempt)
        if jobset is None:
            begun = any(is_made_for(pod, job) and is_of_attempt(pod, attempt.number) for pod in pods)
            if not (begun or _is_final(job, attempt)):
                return None
            return await self.fetch_child(Role.HOST, namespace, name)
        released = not jobset.get("spec", {}).get("suspend")
        if not is_labelled(jobset) or (released and is_misnumbered(jobset, attempt.number)):
            return await self.fetch_child(Role.HOST, namespace, jobset["metadata"]["name"])
        return jobset

    def _find_jobset(self, job: FrayJob, attempt: AttemptStatus) -> Manifest | None:
        """Return the attempt's JobSet as the cache knows it: by its labels, should the status name another.

        When none is the attempt's, the one that the status names, whosever it is.
        """
        namespace = job.metadata.namespace or ""
        jobsets = self._jobsets(namespace)
        named = jobsets.get(namespace, attempt.job_set or "")
        if named is not None and is_owned(named, job) and is_child_of(named, attempt.number):
            return named
        found = jobsets.of_job((namespace, job.metadata.name))
        ours = (one for one in found if is_owned(one, job) and is_child_of(one, attempt.number))
        return next(ours, named)

    async def _make_sure(
        self, job: FrayJob, attempt: AttemptStatus, jobset: Manifest, gang: GangObservation
    ) -> tuple[Manifest, GangObservation]:
        """Ask the server where an end is judged by what one cache lacks that the other has seen.

        The caches of JobSets and pods aren't of one moment, and a verdict can't be taken back.
        """
        shape, first = derive_gang(job.spec), attempt.reason is None
        unseen = [host for host in gang.hosts if _is_unseen(host)]
        if unseen and (first or gang.ended):
            # What seems to be gone, or never to have run, may still run, or tell itself how it has ended.
            pods = await self._list_pods(jobset)
            gang = derive_gang_observation(shape, jobset, pods, gone=self._gone_of(jobset))
        if first and not gang.settled and not gang.suspended and _is_taken(gang):
            # They are deleted too when somebody suspends the JobSet, or deletes it.
            namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
            found = await self.fetch_child(Role.HOST, namespace, name)
            if found is not None and found["metadata"]["uid"] == jobset["metadata"]["uid"]:
                jobset = found
                pods = await self._list_pods(jobset)
                gang = derive_gang_observation(shape, jobset, pods, gone=self._gone_of(jobset))
        if is_unexplained(attempt, gang):
            gang = with_job_evidence(gang, await self._list_jobs(jobset))
        return jobset, gang

    def _gone_of(self, jobset: Manifest) -> list[Manifest]:
        """Return what pods of a JobSet showed last that are gone."""
        metadata = jobset["metadata"]
        key = metadata["namespace"], metadata.get("labels", {}).get(LABEL_JOB, "")
        return _select_pods(self._pods(key[0]).gone_of_job(key), jobset)

    async def _list_pods(self, jobset: Manifest) -> list[Manifest]:
        """Return the pods of a JobSet as they are on the server; raises `ApiError`."""
        namespace, uid = jobset["metadata"]["namespace"], jobset["metadata"]["uid"]
        pods = await self._pods(namespace).read(namespace=namespace, labels=f"{LABEL_JOBSET_UID}={uid}")
        return _select_pods(pods, jobset)

    async def _with_evidence(
        self, attempt: AttemptStatus, gang: GangObservation, *, now: datetime
    ) -> GangObservation:
        """Return the gang with what its nodes tell, where its pods and Jobs don't tell enough."""
        if needs_nodes(attempt, gang, now=now, settle_seconds=self._policy.settle_seconds):
            gang = with_node_evidence(gang, await self._view_nodes(judging=gang.ended), now=now)
        return gang

    async def _view_nodes(self, *, judging: bool = False) -> Nodes:
        """Return the nodes to judge by; raises `ApiError`, since a wrong charge can't be taken back.

        Without the right to read them it is done without.
        """
        answer = None if self._nodes is None else await self._nodes.get(judging=judging)
        if isinstance(answer, ApiError) and not isinstance(answer, ForbiddenError):
            raise answer
        listed = None if isinstance(answer, ApiError) else answer
        return Nodes.of(listed, unreachable_seconds=self._policy.unreachable_seconds)

    async def _list_jobs(self, jobset: Manifest) -> list[Manifest]:
        """Return the Jobs that a JobSet controls; raises `ApiError`: a wrong charge can't be taken back.

        Without the right to read them the attempt is judged without them, or it would wait for ever.
        """
        metadata = jobset["metadata"]
        labels = f"{LABEL_JOBSET_UID}={metadata['uid']}"
        pages = self._api.list_pages(JOBS, namespace=metadata["namespace"], labels=labels)
        try:
            return [
                trim_attempts_job(job)
                async for page in pages
                for job in page.items
                if is_controlled_by(job, metadata["uid"])
            ]
        except ForbiddenError as error:
            logger.warning("Jobs can't be read; an eviction may be charged as a failure: %s", error)
            return []

    async def _explain(
        self, job: FrayJob, jobset: Manifest, pods: Sequence[Manifest], *, ask: bool, now: datetime
    ) -> Waiting | None:
        """Return why pods wait; the server is asked for nodes only when the scheduler has given up on one.

        `ask` says whether pods are missing for so long that their controllers' complaints are looked at.
        """
        waiting = derive_waiting(pods)
        if waiting is not None and waiting.reason is Reason.UNSCHEDULABLE:
            answer = None if self._nodes is None else await self._nodes.get()
            nodes = None if isinstance(answer, ApiError) else answer
            avoided, demand = job.status.avoided_nodes, derive_demand(job)
            waiting = derive_waiting(pods, nodes=nodes, avoided=avoided, demand=demand)
            if waiting is not None and self._node_pools is not None:
                waiting = self._node_pools.explain(job, waiting)
            return waiting
        if waiting is None and ask:
            complaints = await self._create_failures.get(jobset["metadata"]["namespace"])
            failures = list_create_failures(jobset, complaints)
            waiting = derive_waiting(pods, create_failures=failures)
        if waiting is None and (held := find_held(pods, now=now)):
            complaints = await self._volume_failures.get(jobset["metadata"]["namespace"])
            waiting = derive_volume_waiting(held, complaints, now=now)
        return waiting

    async def _with_node_pools(self, gang: GangObservation) -> GangObservation:
        """Return a gang with the node pools of hosts on broken nodes; the server is asked only for those."""
        if self._nodes is None or not any(map(is_infrastructure_fault, gang.hosts)):
            return gang
        nodes = await self._nodes.get()
        listed = nodes if isinstance(nodes, Sequence) else ()
        return with_node_pools(gang, {node.name: node.labels.get(LABEL_NODE_POOL) for node in listed})


def _select_pods(pods: Sequence[Manifest], jobset: Manifest) -> list[Manifest]:
    """Return those of a JobSet by uid: pods of a deleted one of its name may end long after it is gone."""
    uid = jobset["metadata"]["uid"]
    return [pod for pod in pods if pod["metadata"]["labels"].get(LABEL_JOBSET_UID) == uid]


def _is_unseen(host: HostObservation) -> bool:
    """Return whether a host failed, and its own pod shows nothing of it."""
    return host.failed and host.ended_at is None and host.exit_code is None and host.reason is None


def _is_taken(gang: GangObservation) -> bool:
    cause = derive_cause(gang)
    return cause is not None and cause.reason is Reason.HOSTS_GONE


def _earliest(looks: Sequence[float | None]) -> float | None:
    return min((look for look in looks if look is not None), default=None)


def _is_final(job: FrayJob, attempt: AttemptStatus) -> bool:
    """Return whether a missing JobSet ends the attempt, rather than having it created."""
    ending = attempt.reason is not None or attempt.running_time is not None or describe_stop(job) is not None
    # Where the version that named it otherwise was cut off, the cache may not know yet of what it made.
    renamed = attempt.job_set != build_jobset_name(
        job.metadata.name, attempt=attempt.number, gang=derive_gang(job.spec)
    )
    return ending or job.spec.suspend or renamed
