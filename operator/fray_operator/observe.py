"""What there is in the cluster about one FrayJob: the read side of a pass.

Caches answer almost everything. The server is asked only about a job that is stuck: for the nodes there
are, and for what the Job controller complained about. What it means is `fray.plan`'s to say.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.resources import EVENTS, JOBSETS, NODES
from fray.plan.gang import derive_gang
from fray.plan.observation import GangObservation, HostPhase, Waiting
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.scheduling import NodeSummary, build_node_summary, derive_waiting
from fray.plan.timestamps import parse_time
from fray.vocabulary import LABEL_JOBSET_UID, REPLICATED_JOB, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus
from fray_operator.informer import Informer
from fray_operator.shared_answer import SharedAnswer

__all__ = ["Observed", "Observer"]

logger = logging.getLogger(__name__)

NODES_SECONDS = 15.0
"""How long a list of nodes is good enough to explain with."""
EVENTS_SECONDS = 5.0
"""How long a list of what the Job controller complained about is good enough."""
PATIENCE_SECONDS = 5.0
"""How long a JobSet may take to get its pods before the server is asked why; it is asked ever more rarely."""
PATIENCE_CAP_SECONDS = 60.0


@dataclass(frozen=True)
class Observed:
    """The current attempt's JobSet and gang; both None where there is no attempt or no JobSet."""

    jobset: Manifest | None = None
    gang: GangObservation | None = None
    foreign: Waiting | None = None
    """Set when an object of the attempt's name belongs to somebody else."""
    look_again: float | None = None
    """Seconds after which to observe again although nothing changed."""


class Observer:
    """Reads about FrayJobs from the caches, and from the server where they can't answer."""

    def __init__(
        self,
        api: KubeApi,
        *,
        jobsets: Callable[[str], Informer],
        pods: Callable[[str], Informer],
        read_nodes: bool,
    ) -> None:
        self._api, self._jobsets, self._pods = api, jobsets, pods
        self._read_nodes = read_nodes
        self._nodes = SharedAnswer(self._list_nodes, seconds=NODES_SECONDS)
        self._failures: dict[str, SharedAnswer[list[_CreateFailure]]] = {}

    async def observe(self, job: FrayJob, *, now: datetime) -> Observed:
        """Return what there is of the job's current attempt."""
        attempt = job.status.attempts[-1] if job.status.attempts else None
        if attempt is None or attempt.verdict is not None or attempt.job_set is None:
            return Observed()
        namespace = job.metadata.namespace or ""
        jobset = self._jobsets(namespace).get(namespace, attempt.job_set)
        if jobset is None and _is_final(job, attempt):
            jobset = await self._fetch_jobset(namespace, attempt.job_set)
        if jobset is None:
            return Observed()
        if not is_owned(jobset, job):
            return Observed(foreign=describe_foreign(jobset))
        of_job = self._pods(namespace).of_job((namespace, job.metadata.name))
        # By uid: pods of a deleted job of the same name may end long after their JobSet is gone.
        uid = jobset["metadata"]["uid"]
        pods = [pod for pod in of_job if pod["metadata"]["labels"].get(LABEL_JOBSET_UID) == uid]
        gang = derive_gang_observation(derive_gang(job.spec), jobset, pods)
        if not gang.count(HostPhase.PENDING):
            return Observed(jobset, gang)
        # A JobSet that is suspended waits for its queue, and has no pods.
        missing = len(gang.hosts) > len(pods) and not jobset["spec"]["suspend"]
        age = (now - parse_time(jobset["metadata"]["creationTimestamp"])).total_seconds()
        waiting = await self._explain(jobset, pods, ask=missing and age >= PATIENCE_SECONDS)
        look_again = None
        if missing or waiting is not None:
            look_again = min(PATIENCE_CAP_SECONDS, max(PATIENCE_SECONDS, age / 4))
        return Observed(jobset, GangObservation(gang.hosts, waiting), look_again=look_again)

    async def _fetch_jobset(self, namespace: str, name: str) -> Manifest | None:
        """Ask the server itself: the cache may not have seen a JobSet whose creation was cut off."""
        try:
            jobset = await self._api.get(JOBSETS, name, namespace=namespace)
        except NotFoundError:
            return None
        self._jobsets(namespace).remember(jobset)
        return jobset

    async def _explain(self, jobset: Manifest, pods: Sequence[Manifest], *, ask: bool) -> Waiting | None:
        """Return why pods wait; the server is asked for nodes only when the scheduler has given up on one."""
        waiting = derive_waiting(pods)
        if waiting is not None and waiting.reason is Reason.UNSCHEDULABLE:
            nodes = await self._nodes.get() if self._read_nodes else None
            return waiting if nodes is None else derive_waiting(pods, nodes=nodes)
        if waiting is None and ask:
            return derive_waiting(pods, create_failures=await self._create_failures(jobset))
        return waiting

    async def _list_nodes(self) -> Sequence[NodeSummary] | None:
        try:
            pages = [page async for page in self._api.list_pages(NODES)]
        except ApiError as error:
            logger.warning("nodes can't be read; explanations will be less precise: %s", error)
            return None
        return [build_node_summary(node) for page in pages for node in page.items]

    async def _create_failures(self, jobset: Manifest) -> list[str]:
        """Return what the Job controller said about pods that it could not create, newest first."""
        metadata = jobset["metadata"]
        namespace = metadata["namespace"]
        if namespace not in self._failures:
            ask = functools.partial(self._list_create_failures, namespace)
            self._failures[namespace] = SharedAnswer(ask, seconds=EVENTS_SECONDS)
        # Events outlive what they are about: those of an earlier JobSet of this name are older.
        child, since = f"{metadata['name']}-{REPLICATED_JOB}-", parse_time(metadata["creationTimestamp"])
        found = [
            failure
            for failure in await self._failures[namespace].get()
            if failure.job.removeprefix(child).isdigit() and failure.at >= since
        ]
        found.sort(key=lambda failure: failure.at, reverse=True)
        return [failure.message for failure in found]

    async def _list_create_failures(self, namespace: str) -> list[_CreateFailure]:
        # The server looks at every event of the namespace to answer this.
        fields = "involvedObject.kind=Job,reason=FailedCreate"
        try:
            pages = [page async for page in self._api.list_pages(EVENTS, namespace=namespace, fields=fields)]
        except ApiError as error:
            logger.warning("events can't be read; explanations will be less precise: %s", error)
            return []
        return [
            _CreateFailure(
                event["involvedObject"].get("name", ""), _last_seen(event), str(event.get("message", ""))
            )
            for page in pages
            for event in page.items
        ]


@dataclass(frozen=True)
class _CreateFailure:
    """What the Job controller said last about a pod of `job` that it could not create."""

    job: str
    at: datetime
    message: str


def _is_final(job: FrayJob, attempt: AttemptStatus) -> bool:
    """Return whether a missing JobSet ends the attempt, rather than having it created."""
    ending = attempt.reason is not None or attempt.running_time is not None
    return ending or job.spec.stopped or job.spec.suspend


def is_owned(manifest: Manifest, job: FrayJob) -> bool:
    """Return whether an object is controlled by this very FrayJob, not by one of the same name before it."""
    owners = manifest["metadata"].get("ownerReferences", [])
    return any(owner.get("uid") == job.metadata.uid and owner.get("controller") for owner in owners)


def describe_foreign(manifest: Manifest) -> Waiting:
    """Return that an object's name is taken by somebody else's object."""
    name = manifest["metadata"]["name"]
    owners = manifest["metadata"].get("ownerReferences", [])
    whose = f"{owners[0].get('kind')} {owners[0].get('name')}" if owners else "nobody"
    return Waiting(
        Reason.NAME_TAKEN,
        f"JobSet {name} exists and is owned by {whose} (another object, or one that is being deleted)",
    )


def _last_seen(event: Manifest) -> datetime:
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return parse_time(text) if text else datetime.min.replace(tzinfo=UTC)
