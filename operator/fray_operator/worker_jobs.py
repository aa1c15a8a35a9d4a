"""The workers of FrayJobs as they are in the cluster: their Jobs are watched, their pods read when needed.

A job may have thousands of such pods, and most passes need none of them. `fray.plan.worker_observation`
decides which are needed, and what they mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fray.kube.api import KubeApi, Manifest
from fray.kube.resources import PODS
from fray.plan.manifests import find_condition
from fray.plan.node_evidence import Nodes
from fray.plan.worker_observation import (
    WorkersObservation,
    derive_workers_observation,
    needs_nodes,
    needs_pods,
    read_worker_job,
)
from fray.plan.workers import derive_wanted
from fray.vocabulary import LABEL_CONTROLLER_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer, trim_pod
from fray_operator.list_watch import find_controller
from fray_operator.ownership import is_owned

__all__ = ["ObservedWorkers", "WorkerJobs"]

LOOK_SECONDS: Final = 10.0
"""How often pods are looked at while there aren't as many ready ones as there are to be."""


@dataclass(frozen=True)
class ObservedWorkers:
    """The Jobs of an attempt's workers and what they tell; `state` is None where there can't be any."""

    manifests: tuple[Manifest, ...] = ()
    state: WorkersObservation | None = None
    look_again: float | None = None
    """Seconds after which to observe again although nothing changed."""


class WorkerJobs:
    """Reads the workers of FrayJobs.

    `jobs` gives the cache of their Jobs for a namespace; `view_nodes` reads the nodes to judge by.
    """

    def __init__(
        self, api: KubeApi, jobs: Callable[[str], Informer], *, view_nodes: Callable[[], Awaitable[Nodes]]
    ) -> None:
        self._api, self._jobs, self._view_nodes = api, jobs, view_nodes

    async def observe(self, job: FrayJob, attempt: int, *, now: datetime) -> ObservedWorkers:
        """Return what there is of the workers of the current attempt of a job; raises `ApiError`."""
        namespace = job.metadata.namespace or ""
        known = self._jobs(namespace).of_job((namespace, job.metadata.name))
        manifests = tuple(one for one in known if is_owned(one, job))
        wanted = derive_wanted(job.spec)
        jobs, own = [], list[Manifest]()
        for manifest in manifests:
            read = read_worker_job(manifest)
            if needs_pods(read, attempt=attempt, wanted=wanted):
                pods = await self._list_pods(manifest)
                own += pods if read.is_of(attempt) else ()
                read = read_worker_job(manifest, pods)
            jobs.append(read)
        nodes = await self._view_nodes() if needs_nodes(jobs, now=now) else Nodes()
        state = derive_workers_observation(jobs, own, nodes, attempt=attempt, now=now)
        looked = any(one.running is not None for one in jobs)
        return ObservedWorkers(manifests, state, LOOK_SECONDS if looked else None)

    async def _list_pods(self, worker_job: Manifest) -> list[Manifest]:
        """Return what matters of the pods that a Job controls: anybody can set the label that finds them."""
        metadata = worker_job["metadata"]
        labels = f"{LABEL_CONTROLLER_UID}={metadata['uid']}"
        pages = self._api.list_pages(PODS, namespace=metadata["namespace"], labels=labels)
        return [
            _trim_worker_pod(pod)
            async for page in pages
            for pod in page.items
            if (controller := find_controller(pod)) is not None and controller["uid"] == metadata["uid"]
        ]


def _trim_worker_pod(pod: Manifest) -> Manifest:
    kept = trim_pod(pod)
    ready = find_condition(pod, "Ready")
    conditions = [*kept["status"]["conditions"], *([ready] if ready else [])]
    return {**kept, "status": {**kept["status"], "conditions": conditions}}
