"""Jobs as whole resources, which is how the command line takes, shows and follows them.

`KubernetesCluster` speaks of requests and `JobInfo`, as every backend does; this speaks of FrayJobs, on the
same connection. What is printed is no matter of this module.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import Any

from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.cluster import KubernetesCluster
from fray.cluster.kubernetes.launching import launch_job
from fray.cluster.kubernetes.results import describe_place, list_jobs, read_job
from fray.cluster.kubernetes.retries import persistently
from fray.cluster.kubernetes.waiting import JobWait
from fray.cluster.manifest import JobManifest
from fray.errors import FieldError, InvalidJobError, WaitTimeoutError
from fray.kube.api import Manifest
from fray.kube.errors import ConflictError, NotFoundError, RefusedError
from fray.kube.resources import FRAYJOBS
from fray.plan.names import build_object_name
from fray.plan.status import is_finished
from fray.types import JobId
from fray.vocabulary import ANNOTATION_LAUNCH, ANNOTATION_ORIGINAL_NAME
from fray.wire.frayjob import FrayJob, Parent

__all__ = ["Applied", "KubernetesJobs", "fill_in"]

FIELD_MANAGER = "fray"
"""Who has set fields that `apply` sets, in `metadata.managedFields`."""


class Applied(StrEnum):
    """What applying a manifest did, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


class KubernetesJobs:
    """The FrayJobs of a cluster's namespace, on the cluster's connection.

    Methods raise `SurroundingsError` where the cluster can't be asked.
    """

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.cluster = cluster

    @property
    def place(self) -> str:
        """Where they are, in words."""
        return self.cluster.session.ask(_describe_place)

    def find_job(self, name: str) -> FrayJob:
        """Return a job as it is now; raises `JobNotFoundError`, with names like it."""
        return FrayJob.from_manifest(self.cluster.session.ask(lambda access: read_job(access, JobId(name))))

    def list_jobs(self) -> list[FrayJob]:
        """Return all jobs, sorted by name."""
        jobs = map(FrayJob.from_manifest, self.cluster.session.ask(list_jobs))
        return sorted(jobs, key=lambda job: job.metadata.name)

    def submit(self, manifest: Manifest) -> JobId:
        """Create a job, under another name where a finished one has the name: `train-2`.

        Raises:
            JobExistsError: A job of this name lives.
            InvalidJobError: The server refuses it.
        """
        launch = _ManifestLaunch(manifest, secrets.token_hex(16))
        return self.cluster.session.ask(
            lambda access: launch_job(access, launch, when_taken="refuse", numbers={})
        )

    def apply(self, manifest: Manifest) -> Applied:
        """Make a job be as a manifest says, as `kubectl apply` does.

        Raises:
            InvalidJobError: The server refuses it, for what it says or since it would change what a job
                can't have changed.
        """

        async def apply(access: Access) -> Applied:
            return await _apply(access, manifest)

        return self.cluster.session.ask(apply)

    def follow(self, name: str) -> Iterator[FrayJob]:
        """Yield a job as it is now, then after each change, until it has finished.

        Raises:
            JobNotFoundError: There is no such job.
            JobDeletedError: It was deleted meanwhile.
        """
        news: SimpleQueue[FrayJob | BaseException | None] = SimpleQueue()

        def tell(job: FrayJob) -> bool:
            news.put(job)
            return is_finished(job.status)

        wait = JobWait([JobId(name)], None, is_over=tell)

        async def watch(access: Access) -> None:
            await wait(access)

        started = self.cluster.session.start(watch, news.put)
        try:
            while (item := news.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            started.cancel()

    def wait(self, names: Sequence[str], timeout: float | None) -> list[FrayJob]:
        """Return jobs once all have finished, in the order of their names as given.

        Raises:
            JobNotFoundError: There is no such job, or it was deleted meanwhile.
            WaitTimeoutError: Not all have finished in time.
        """
        wanted = [JobId(name) for name in names]
        seen = self.cluster.session.ask(JobWait(wanted, timeout))
        jobs = [FrayJob.from_manifest(seen[name]) for name in wanted]
        unfinished = tuple(job.metadata.name for job in jobs if not is_finished(job.status))
        if unfinished and timeout is not None:
            raise WaitTimeoutError(unfinished, timeout)
        return jobs


def fill_in(manifest: Manifest, spec: KubernetesSpec, *, parent: Parent | None) -> Manifest:
    """Return a FrayJob with what a cluster spec gives to jobs that leave it open, and its parent."""
    job = dict(manifest["spec"])
    if spec.image is not None:
        job["environment"] = {"image": spec.image, **(job.get("environment") or {})}
    if spec.service_account is not None:
        job.setdefault("serviceAccountName", spec.service_account)
    if spec.queue is not None:
        job.setdefault("queue", {"name": spec.queue})
    if parent is not None:
        job.setdefault("parent", parent.to_manifest())
    return {**manifest, "spec": job}


@dataclass(frozen=True)
class _ManifestLaunch:
    """A FrayJob that is launched as it stands in its file."""

    manifest: Manifest
    word: str

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def parent(self) -> Parent | None:
        return FrayJob.from_manifest(self.manifest).spec.parent

    def build(self, name: str) -> JobManifest:
        metadata = self.manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION_LAUNCH: self.word}
        # The file's own name is legal, and stays as it is.
        legal = name if name == self.name else build_object_name(name)
        if legal != self.name:
            annotations.setdefault(ANNOTATION_ORIGINAL_NAME, self.name)
        named = {**metadata, "name": legal, "annotations": annotations}
        return JobManifest(
            manifest={**self.manifest, "metadata": named}, secret_name=f"{legal}-env", secret_variables={}
        )

    def build_secrets(self, built: JobManifest, owner: Manifest) -> list[Manifest]:  # noqa: ARG002
        return []  # a file refers to Secrets that are there


async def _describe_place(access: Access) -> str:
    return describe_place(access)


async def _apply(access: Access, manifest: Manifest) -> Applied:
    name, namespace = manifest["metadata"]["name"], access.namespace
    try:
        before = await persistently(lambda: access.api.get(FRAYJOBS, name, namespace=namespace))
    except NotFoundError as missing:
        if not missing.reason:
            raise  # no such kind
        before = None
    try:
        after = await persistently(
            lambda: access.api.apply(FRAYJOBS, manifest, manager=FIELD_MANAGER, namespace=namespace)
        )
    except (ConflictError, RefusedError) as refused:
        raise InvalidJobError(name, (FieldError("", refused.detail),)) from refused
    if before is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return Applied.CREATED
    return Applied.UNCHANGED if _meant(before) == _meant(after) else Applied.CONFIGURED


def _meant(job: Manifest) -> tuple[Any, ...]:
    """What a user says of a job; all else in it is the server's and the operator's."""
    metadata = job["metadata"]
    return job["spec"], metadata.get("labels"), metadata.get("annotations")
