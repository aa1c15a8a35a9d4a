"""Jobs on a Kubernetes cluster: what users call."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from fray.cluster.answers import Applied, CheckResult, Dashboard, Preview
from fray.cluster.arguments import LogChoice, WhenTaken, check_job_id, check_launch, check_whole_number
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.command_streams import CommandStreams
from fray.cluster.kubernetes.access import Access, OpenAccess, open_access
from fray.cluster.kubernetes.actors import ActorReading, delete_actor, list_actors
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.kubernetes.changes import apply_job, fill_in, stop_job
from fray.cluster.kubernetes.examination import examine
from fray.cluster.kubernetes.launching import (
    Launch,
    Launchable,
    WrittenJob,
    launch_job,
    prepare_launch,
    prepare_written,
    withdraw_job,
)
from fray.cluster.kubernetes.log_reading import Reading, read_logs
from fray.cluster.kubernetes.logs import LogReading, PrintedLines, prepare_reading
from fray.cluster.kubernetes.results import (
    KeptOutcome,
    describe_place,
    list_jobs,
    read_job,
    read_outcome,
    read_outcomes,
)
from fray.cluster.kubernetes.running_hosts import open_dashboard, run_command
from fray.cluster.kubernetes.session import Session
from fray.cluster.kubernetes.waiting import JobWait
from fray.cluster.manifest import find_parent
from fray.cluster.workspace import Archiver
from fray.credentials import redacted
from fray.errors import (
    OutcomeUnreadableError,
    PayloadMissingError,
    PayloadStorageError,
    UnsupportedFeatureError,
)
from fray.kube.resources import FRAYJOBS
from fray.kube.topology import read_topology
from fray.payload.outcome import Outcome, decode_outcome
from fray.payload.staging import FsspecStorage
from fray.plan.gang_placement import ClusterTopology
from fray.plan.status import is_finished
from fray.types import JobId, JobRequest, LogLine
from fray.wire.frayactor import FrayActor
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from fray.cluster.kubernetes.actor_reach import ClusterReach
    from fray.job.actors import ActorHandle
    from fray.job.hosted_actors import Hosting
    from fray.job.options import ActorOptions
    from fray.runtime.pool.view import PoolView

__all__ = ["KubernetesCluster"]

NO_WORD = "0" * 32
"""Stands for the random word of a launch, so that the same request is shown alike."""


class KubernetesCluster(Cluster):
    """The jobs of one namespace of a Kubernetes cluster that has Fray's operator.

    Nothing is sent before the first call. There is one connection pool and one thread, from the first call
    until `close`, the end of the process, or until nobody holds the object any more. It can be pickled: the
    other process connects anew.

    Args:
        spec: Which cluster and namespace, and what jobs get where a request doesn't say.
        environ: Variables that name a kubeconfig, a pod's account and the job that this process belongs to;
            those of the process when None.
        brief: Whether little is asked of it, as by a command: then it is asked without aiohttp, whose import
            takes long, with a connection for each request. Streams use aiohttp all the same.
        open_access: What leads to the API server, instead of `spec` and `environ`.
    """

    def __init__(
        self,
        spec: KubernetesSpec | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        brief: bool = False,
        open_access: OpenAccess | None = None,
    ) -> None:
        self._spec = spec = KubernetesSpec() if spec is None else spec
        self._environ = os.environ if environ is None else environ  # noqa: TID251 - where it is read
        self._storage = FsspecStorage()
        self._session = Session(
            open_access or _opener(spec, self._environ, brief=brief), owner=redacted(str(spec))
        )
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
        return self._launch(self._prepare(request, self._spec), when_taken, self._numbers)

    def _prepare(self, request: JobRequest, spec: KubernetesSpec) -> Launch:
        namespace = spec.namespace or self._session.ask(_name_namespace)
        return prepare_launch(
            request.with_environment(),
            replace(spec, namespace=namespace),
            word=secrets.token_hex(16),
            parent=find_parent(self._environ),
            storage=self._storage,
            archiver=self._archiver,
        )

    def preview(self, wanted: JobRequest | FrayJob, *, workspace: Path | None = None) -> Preview:
        """Return what launching a request, or creating a job, would create; see `Cluster.preview`."""
        storage, archiver = _NoStorage(), Archiver()
        launch: Launch | WrittenJob
        if isinstance(wanted, FrayJob):
            launch = prepare_written(
                wanted, self._spec, word=NO_WORD, workspace=workspace, storage=storage, archiver=archiver
            )
        else:
            launch = prepare_launch(
                wanted.with_environment(),
                self._spec,
                word=NO_WORD,
                parent=find_parent(self._environ),
                storage=storage,
                archiver=archiver,
            )
        built = launch.build(launch.name)
        names = [part.secret_name for part in launch.parts]
        if built.secret_variables:
            names.append(built.secret_name)
        return Preview(built.job, tuple(dict.fromkeys(names)))

    def examine(self) -> list[CheckResult]:
        """Look at what jobs need; see `Cluster.examine`."""
        return self._session.ask(lambda access: examine(access, self._spec))

    def read_topology(self, job: FrayJob) -> ClusterTopology:
        """Return what there is to keep the hosts of a job together; see `Cluster.read_topology`."""
        return self._session.ask(lambda access: read_topology(access.api, job))

    @property
    def place(self) -> str:
        """The namespace and the API server."""
        return self._session.ask(_describe_place)

    def create(self, job: FrayJob, *, directory: Path | None = None, workspace: Path | None = None) -> JobId:
        """Create a FrayJob as it is written, under another name where a finished one has its: `train-2`.

        What the cluster spec says counts where the job leaves it open. `directory` means nothing here;
        `workspace` goes along as that of a request does.
        """
        del directory
        written = fill_in(job, self._spec, parent=find_parent(self._environ))
        return self._launch(self._prepare_written(written, workspace), "refuse", {})

    def apply(self, job: FrayJob, *, workspace: Path | None = None) -> Applied:
        """Make a job be as it is written, as `kubectl apply` does; see `Cluster.apply`."""
        written = self._prepare_written(job, workspace)
        return self._session.ask(lambda access: apply_job(access, written))

    def _prepare_written(self, job: FrayJob, workspace: Path | None) -> WrittenJob:
        return prepare_written(
            job,
            self._spec,
            word=secrets.token_hex(16),
            workspace=workspace,
            storage=self._storage,
            archiver=self._archiver,
        )

    def get(self, job_id: JobId) -> FrayJob:
        """Return a job as it is now; see `Cluster.get`."""
        return self._session.ask(lambda access: read_job(access, job_id))

    def get_all(self) -> list[FrayJob]:
        """Return all jobs of the namespace, no matter who made them, sorted by name."""
        return self._session.ask(list_jobs)

    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        """Yield a job as it is now, then after each change, until it has finished; see `Cluster.watch`."""
        news: SimpleQueue[FrayJob | BaseException | None] = SimpleQueue()

        def tell(job: FrayJob) -> bool:
            news.put(job)
            return is_finished(job.status)

        wait = JobWait([check_job_id(job_id)], None, is_over=tell)

        async def follow(access: Access) -> None:
            await wait(access)

        started = self._session.start(follow, news.put)
        try:
            while (item := news.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            started.cancel()

    def delete(self, job_id: JobId) -> None:
        """Delete a job with its pods, its logs and its Secrets; Kubernetes ends what still runs."""

        async def delete(access: Access) -> None:
            uid = (await read_job(access, job_id)).metadata.uid

            await persistently(
                lambda: access.api.delete(FRAYJOBS, job_id, namespace=access.namespace, uid=uid)
            )

        self._session.ask(delete)

    def terminate(self, job_id: JobId) -> None:
        """Set `spec.stopped` of a job: the operator ends its hosts, and the job stays with its status."""

        async def stop(access: Access) -> None:
            await read_job(access, job_id)
            await stop_job(access, job_id)

        self._session.ask(stop)

    def _read_logs(self, job_id: JobId, choice: LogChoice) -> Iterator[LogLine]:
        reading = self._session.ask(lambda access: prepare_reading(access, job_id, choice))
        reading.unfinished = choice.unfinished
        return self._iterate(reading) if choice.tail is None else self._read_tail(reading, choice.tail)

    def _read_tail(self, following: LogReading, tail: int) -> Iterator[LogLine]:
        """Yield the last lines of the latest or chosen attempt, then what comes after where it follows."""
        begun = following.job.status.attempts
        attempt = following.attempt or (begun[-1].number if begun else 0)
        printed: Iterator[LogLine] = iter(())
        if begun:
            printed = self._iterate(following.once(attempt))
        printed_lines = PrintedLines(printed, tail)
        yield from printed_lines.last
        if following.follow:
            yield from printed_lines.skip(
                line for line in self._iterate(following) if line.attempt >= attempt
            )

    def _iterate(self, reading: Reading) -> Iterator[LogLine]:
        started = self._session.start(lambda access: read_logs(access, reading), reading.end)
        try:
            while (lines := started.run(reading.next_lines())) is not None:
                yield from lines
        finally:
            started.cancel()

    def get_actors(self) -> list[FrayActor]:
        """Return all FrayActors of the namespace, sorted by name."""
        return self._session.ask(list_actors)

    def get_actor(self, name: str) -> ActorHandle[Any]:
        """Return the handle of an actor, which calls it through a port-forward; see `Cluster.get_actor`.

        A call opens the port-forward, and another one where it has broken. It needs the rights to read the
        Secret `fray-auth`, and to get and create pods/portforward.

        Raises:
            ActorNotFoundError: There is none, or several jobs have one that is called so.
            AccessDeniedError: The account lacks a right; calls raise it, too.
        """
        return super().get_actor(name)

    def _reach(self) -> ClusterReach:
        from fray.cluster.kubernetes.actor_reach import ClusterReach  # noqa: PLC0415 - loads what few ask for

        return ClusterReach(self, self._session)

    def _create_actors(
        self, request: JobRequest, options: ActorOptions, count: int
    ) -> Sequence[ActorHandle[Any]]:
        from fray.cluster.kubernetes.actor_creation import create_actors  # noqa: PLC0415 - as above

        # By value alone: the name of its Secret tells a creator's own actor from another's.
        launch = self._prepare(request, replace(self._spec, staging=None))
        return create_actors(self._reach(), launch, options, count)

    def _hosting(self, name: str) -> Hosting:
        from fray.job.hosted_actors import find_pod_hosting  # noqa: PLC0415 - as above

        found = find_pod_hosting(os.environ)  # noqa: TID251 - whether this is the process of a job's pod
        if found is None:
            raise UnsupportedFeatureError(
                f"hosting actor {name!r}",
                "this process is in no pod of a job, so that pods can't call it",
                "Give the actor a pod of its own by create_actor(...), or host it in a job with a callable "
                "or workers.",
            )
        return found

    def delete_actor(self, actor: FrayActor) -> None:
        """Delete a FrayActor with its pods and their logs; see `Cluster.delete_actor`."""
        self._session.ask(lambda access: delete_actor(access, actor))

    def actor_logs(
        self, actor: FrayActor, *, follow: bool = False, member: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Return the lines that an actor's members printed; see `Cluster.actor_logs`."""
        check_whole_number("tail", tail)
        if tail is None:
            return self._iterate(ActorReading(actor, follow=follow, member=member))
        printed = PrintedLines(self._iterate(ActorReading(actor, follow=False, member=member)), tail)
        if not follow:
            return iter(printed.last)
        coming = self._iterate(ActorReading(actor, follow=True, member=member))
        return chain(printed.last, printed.skip(coming))

    def run_command(
        self, job_id: JobId, command: Sequence[str], *, rank: int = 0, streams: CommandStreams
    ) -> int:
        """Run a command in a running pod of a job, as `kubectl exec` does; see `Cluster.run_command`."""
        return self._session.ask(
            lambda access: run_command(access, job_id, command, rank=rank, streams=streams)
        )

    def read_pool(self, job_id: JobId) -> PoolView:
        """Return what the pool of a job has and does now; see `Cluster.read_pool`."""
        from fray.cluster.kubernetes.running_hosts import read_pool  # noqa: PLC0415 - loads what few ask for

        return self._session.ask(lambda access: read_pool(access, job_id))

    def open_dashboard(self, job_id: JobId) -> Dashboard:
        """Return the dashboard of a job's engine through a port-forward; see `Cluster.open_dashboard`.

        It needs the rights to get and create pods/portforward.
        """
        return open_dashboard(self._session, job_id)

    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable, from what its pod left: a ConfigMap, or a staged object.

        None where nothing is kept: for a program, a job that has not finished, was stopped, or was ended by a
        time limit.

        Raises:
            JobNotFoundError: There is no such job.
            OutcomeUnreadableError: It was kept and can't be had, or isn't what the job's status tells of.
        """

        async def read(access: Access) -> KeptOutcome | None:
            return await read_outcome(access, await read_job(access, job_id))

        kept = self._session.ask(read)
        return None if kept is None else self._decode(kept)

    def outcomes(self, job_id: JobId) -> list[Outcome]:
        """Return what every rank of a job returned, from what its pods left; see `Cluster.outcomes`."""

        async def read(access: Access) -> list[KeptOutcome | None]:
            return await read_outcomes(access, await read_job(access, job_id))

        gone = Outcome(problem="its pod kept none, or is gone")
        return [gone if kept is None else self._decode(kept) for kept in self._session.ask(read)]

    def _decode(self, kept: KeptOutcome) -> Outcome:
        try:
            data = self._storage.read(kept.url) if kept.url else kept.data
        except (PayloadMissingError, PayloadStorageError) as error:
            raise OutcomeUnreadableError(str(error), kept.story) from error
        return decode_outcome(data, sha256=kept.sha256)

    def close(self) -> None:
        """Close the connections and end the thread; the next call opens them anew."""
        self._session.close()

    def wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None = None, *, fail_fast: bool = False
    ) -> list[FrayJob]:
        """Return jobs once all have finished, by one watch for all; see `Cluster.wait_finished`."""
        seen = self._session.ask(JobWait(job_ids, timeout, fail_fast=fail_fast))
        return [seen[name] for name in job_ids]

    def _launch(self, launch: Launchable, when_taken: WhenTaken, numbers: dict[str, int]) -> JobId:
        return self._session.ask(
            lambda access: launch_job(access, launch, when_taken=when_taken, numbers=numbers),
            undo=lambda job_id: lambda access: withdraw_job(access, launch, job_id),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_spec, (self._spec,)

    def __repr__(self) -> str:
        return f"KubernetesCluster({redacted(str(self._spec))!r})"


class _NoStorage:
    """Takes what a launch would stage, and keeps nothing."""

    def write(self, url: str, data: bytes) -> None:
        pass


def _opener(spec: KubernetesSpec, environ: Mapping[str, str], *, brief: bool) -> OpenAccess:
    # Not a method: the session must not keep the cluster from being collected.
    return lambda: open_access(spec, environ, brief=brief)


async def _describe_place(access: Access) -> str:
    return describe_place(access)


async def _name_namespace(access: Access) -> str:
    return access.namespace
