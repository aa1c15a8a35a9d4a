"""Jobs on a Kubernetes cluster: what users call."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from fray.cluster.arguments import check_launch
from fray.cluster.base import Cluster, WhenTaken
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import Access, OpenAccess, open_access
from fray.cluster.kubernetes.launching import launch_job, prepare_launch
from fray.cluster.kubernetes.logs import LogReading, prepare_reading, read_logs
from fray.cluster.kubernetes.results import list_jobs, read_job, read_outcome
from fray.cluster.kubernetes.session import Session
from fray.cluster.kubernetes.stopping import stop_job
from fray.cluster.kubernetes.waiting import JobWait
from fray.cluster.manifest import find_parent
from fray.cluster.progress import describe_frayjob
from fray.cluster.workspace import Archiver
from fray.credentials import redacted
from fray.payload.outcome import Outcome, decode_outcome
from fray.payload.staging import FsspecStorage, Storage
from fray.types import JobId, JobInfo, JobRequest, LogLine

__all__ = ["KubernetesCluster"]


class KubernetesCluster(Cluster):
    """The jobs of one namespace of a Kubernetes cluster that has Fray's operator.

    Nothing is sent before the first call. There is one connection pool and one thread, from the first call
    until `close`, the end of the process, or until nobody holds the object any more. It can be pickled: the
    other process connects anew.

    Args:
        spec: Which cluster and namespace, and what jobs get where a request doesn't say.
        environ: Variables that name a kubeconfig, a pod's account and the job that this process belongs to;
            those of the process when None.
        open_access: What leads to the API server, instead of `spec` and `environ`.
        storage: What keeps payloads and workspaces behind `spec.staging`.
    """

    def __init__(
        self,
        spec: KubernetesSpec | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        open_access: OpenAccess | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._spec = spec = KubernetesSpec() if spec is None else spec
        self._environ = os.environ if environ is None else environ  # noqa: TID251 - where it is read
        self._storage: Storage = FsspecStorage() if storage is None else storage
        self._session = Session(open_access or _opener(spec, self._environ), owner=redacted(str(spec)))
        self._archiver = Archiver()
        self._numbers: dict[str, int] = {}
        weakref.finalize(self, self._session.close)

    @classmethod
    def from_spec(cls, spec: KubernetesSpec) -> Self:
        """Return the cluster of a spec."""
        return cls(spec)

    @property
    def spec(self) -> KubernetesSpec:
        """The spec that it was made with."""
        return self._spec

    @property
    def session(self) -> Session:
        """The connection, for what is asked of the cluster beyond the methods of a `Cluster`."""
        return self._session

    def launch(self, request: JobRequest, *, when_taken: WhenTaken = "rename") -> JobId:
        """Create a FrayJob, and the Secrets that it owns; return its name.

        A callable goes along by value, in Secrets, or behind the spec's staging URL where it is larger than
        8 MiB; so does the workspace, as an archive. Under a name that is taken the job gets a number:
        `train-2`.

        Raises:
            RequestError: The request can't be run as it is.
            JobExistsError: A job of this name lives, and `when_taken` is `refuse`.
            SurroundingsError: The cluster doesn't let it; nothing is left behind, but where the error is a
                `JobLeftBehindError`.
        """
        check_launch(request, when_taken)
        namespace = self._spec.namespace or self._session.ask(_name_namespace)
        launch = prepare_launch(
            request.with_environment(),
            replace(self._spec, namespace=namespace),
            word=secrets.token_hex(16),
            parent=find_parent(self._environ),
            storage=self._storage,
            archiver=self._archiver,
        )
        return self._session.ask(
            lambda access: launch_job(access, launch, when_taken=when_taken, numbers=self._numbers)
        )

    def poll(self, job_id: JobId) -> JobInfo:
        """Return how a job stands now.

        Raises:
            JobNotFoundError: There is no such job.
            SurroundingsError: The cluster can't be asked.
        """
        return describe_frayjob(self._session.ask(lambda access: read_job(access, job_id)))

    def list_jobs(self) -> list[JobInfo]:
        """Return all jobs of the namespace, whoever made them, sorted by id.

        Raises:
            SurroundingsError: The cluster can't be asked.
        """
        infos = map(describe_frayjob, self._session.ask(list_jobs))
        return sorted(infos, key=lambda info: info.job_id)

    def terminate(self, job_id: JobId) -> None:
        """Set `spec.stopped` of a job: the operator ends its hosts, and the job stays with its status.

        Raises:
            JobNotFoundError: There is no such job.
            SurroundingsError: The cluster can't be asked.
        """

        async def stop(access: Access) -> None:
            await read_job(access, job_id)
            await stop_job(access, job_id)

        self._session.ask(stop)

    def logs(
        self, job_id: JobId, *, follow: bool = False, rank: int | None = None, attempt: int | None = None
    ) -> Iterator[LogLine]:
        """Return the lines that a job's hosts printed; none comes twice, and what is missing is told.

        Without `follow` those of an attempt come in the order of their times, with it as they come. Where
        lines can't be had any more, since a log was rotated or a pod deleted, a line with `gap` says so.

        Raises:
            JobNotFoundError: There is no such job.
            LogsNotFoundError: It has no such rank or attempt.
            SurroundingsError: The cluster can't be asked; also while iterating, as a `ClusterClosedError`
                where the object is closed meanwhile.
        """
        reading = self._session.ask(
            lambda access: prepare_reading(access, job_id, follow=follow, rank=rank, attempt=attempt)
        )
        return self._iterate(reading)

    def _iterate(self, reading: LogReading) -> Iterator[LogLine]:
        started = self._session.start(lambda access: read_logs(access, reading), reading.end)
        try:
            while (lines := started.run(reading.next_lines())) is not None:
                yield from lines
        finally:
            started.cancel()

    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable, from the ConfigMap that its pod left.

        None where nothing is kept: for a program, a job that has not finished, was stopped, or was ended by a
        time limit.

        Raises:
            JobNotFoundError: There is no such job.
            OutcomeUnreadableError: It was kept and can't be had, or isn't what the job's status tells of.
        """

        async def read(access: Access) -> tuple[bytes, str] | None:
            return await read_outcome(access, await read_job(access, job_id))

        kept = self._session.ask(read)
        return None if kept is None else decode_outcome(kept[0], sha256=kept[1])

    def close(self) -> None:
        """Close the connections and end the thread; the next call opens them anew."""
        self._session.close()

    def _wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None, *, fail_fast: bool
    ) -> list[JobInfo]:
        seen = self._session.ask(JobWait(job_ids, timeout, fail_fast=fail_fast))
        infos = {name: describe_frayjob(job) for name, job in seen.items()}
        return [infos[name] for name in job_ids]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_spec, (self._spec,)

    def __repr__(self) -> str:
        return f"KubernetesCluster({redacted(str(self._spec))!r})"


def _opener(spec: KubernetesSpec, environ: Mapping[str, str]) -> OpenAccess:
    # Not a method: the session must not keep the cluster from being collected.
    return lambda: open_access(spec, environ)


async def _name_namespace(access: Access) -> str:
    return access.namespace
