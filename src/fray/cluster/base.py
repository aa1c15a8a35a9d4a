"""What every backend promises, in the same words: launch, look, wait, read and end jobs.

A backend fills in the abstract methods; what waiting, monitoring and failing mean is written here once, so
that a program can't tell one backend from another by its results. Which backend a process uses is
`current`; what a request becomes is `manifest`.
"""

from __future__ import annotations

import abc
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from fray.cluster.answers import Applied, CheckResult, Dashboard, Preview
from fray.cluster.arguments import LogChoice, WhenTaken, check_job_ids, check_seconds, check_whole_number
from fray.cluster.cluster_spec import ClusterSpec
from fray.cluster.command_streams import CommandStreams
from fray.cluster.failures import raise_failures, raise_first_failure
from fray.cluster.progress import describe_frayjob
from fray.errors import (
    ActorNotFoundError,
    AmbiguousActorError,
    InvalidOptionError,
    UnsupportedFeatureError,
    WaitTimeoutError,
)
from fray.offered_names import offer_names
from fray.payload.outcome import Outcome
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology
from fray.types import (
    Entrypoint,
    JobId,
    JobInfo,
    JobRequest,
    JobStatus,
    LogLine,
    MonitoredJob,
    ResourceConfig,
)
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from fray.job.actor_groups import ActorGroup
    from fray.job.actors import ActorHandle, HostedActor
    from fray.job.hosted_actors import Hosting
    from fray.job.options import ActorOptions, Lifetime
    from fray.legacy.tpu_topology import get_tpu_topology  # noqa: F401 - for readers of an earlier API
    from fray.runtime.actors.joining import Reach
    from fray.runtime.pool.view import PoolView
    from fray.types import EnvironmentConfig
    from fray.wire.frayactor import FrayActor

__all__ = ["MONITORED_LINES", "Cluster"]

logger = logging.getLogger(__name__)
A = TypeVar("A")

offer_names(__name__, ("fray.legacy.tpu_topology", "fray.types"))  # an earlier API had requests here
LEAST_CPU: Final = "1m"
"""What an actor asks for that is to need no CPU: an amount of 0 is none that a request can name."""
MONITORED_LINES: Final = 100_000
"""Lines that `monitor` keeps for its caller, the last ones."""


class Cluster(abc.ABC):
    """A place where jobs run. Methods may be called from any thread.

    Programs speak of requests and `JobInfo`s: `launch`, `wait`, `poll`, `list_jobs`. Tools speak of FrayJobs:
    `create`, `get`, `get_all`, `watch`, `wait_finished`.

    As a context manager it calls `close` at the end.
    """

    _no_apply = (
        "a job on this machine lives no longer than the command that runs it",
        "Use `fray run -f FILE`, or name a cluster: --cluster 'k8s?namespace=...'.",
    )
    """Why jobs can't be applied here, and what to do instead; so for commands in hosts."""
    _no_command = (
        "its hosts are processes of this machine, and no containers",
        "Start the command in a shell of yours: it sees the same files.",
    )

    @property
    @abc.abstractmethod
    def spec(self) -> ClusterSpec:
        """What this cluster is in a cluster spec."""

    @abc.abstractmethod
    def launch(self, request: JobRequest, *, when_taken: WhenTaken = "rename") -> JobId:
        """Start a job and return its id, without waiting for its processes.

        Args:
            request: What to run. Without an environment it gets `create_environment()`.
            when_taken: What to do where a job of this name is there: see `WhenTaken`. By default the new
                one is another job, whose id is the name with a suffix.

        Raises:
            RequestError: The request can't be run as it is; nothing was started.
            JobExistsError: A job of this name lives, and `when_taken` is `refuse`.
            SurroundingsError: The machine or the cluster doesn't let it; nothing is left behind.
        """

    def poll(self, job_id: JobId) -> JobInfo:
        """Return how a job stands now.

        Raises:
            JobNotFoundError: There is no such job. It is a KeyError, too.
            InvalidRequestError: `job_id` is no text; so for all methods that take one.
        """
        return describe_frayjob(self.get(job_id))

    def list_jobs(self) -> list[JobInfo]:
        """Return all jobs, those that have finished included, sorted by id."""
        return [describe_frayjob(job) for job in self.get_all()]

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """Where its jobs are, in words."""

    @property
    def has_launched(self) -> bool:
        """Whether this object has launched jobs that end with it; False where jobs run on without it."""
        return False

    @abc.abstractmethod
    def create(self, job: FrayJob, *, directory: Path | None = None, workspace: Path | None = None) -> JobId:
        """Start a job as its FrayJob says, and return its id; it must be one that the API server takes.

        On a cluster a finished job of its name stays, and this one gets another; here it takes its place.

        Args:
            job: What to run; its status counts for nothing.
            directory: Where processes of this machine start unless their container says where.
            workspace: A directory with the user's code, which goes along; on this machine processes start
                in it.

        Raises:
            RequestError: It can't be run as it is; nothing was started.
            JobExistsError, JobRunningError: A job of this name lives.
            SurroundingsError: The machine or the cluster doesn't let it; nothing is left behind.
        """

    def apply(self, job: FrayJob, *, workspace: Path | None = None) -> Applied:
        """Make a job be as its FrayJob says, whether it is there or not, and return what that did.

        `workspace` is a directory that goes along, as with `create`. A job that is there keeps its own, which
        can't change: a directory with other contents is refused.

        Raises:
            InvalidJobError: It is refused, for what it says or since it would change what must not change.
            UnsupportedFeatureError: Jobs live no longer than the process that runs them.
        """
        del workspace
        raise UnsupportedFeatureError(f"applying job {job.metadata.name!r} here", *self._no_apply)

    @abc.abstractmethod
    def get(self, job_id: JobId) -> FrayJob:
        """Return a job as it is now; raises `JobNotFoundError`."""

    @abc.abstractmethod
    def get_all(self) -> list[FrayJob]:
        """Return all jobs, those that have finished included, sorted by name."""

    @abc.abstractmethod
    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        """Yield a job as it is now, then after each change, until it has finished.

        Raises:
            JobNotFoundError: There is no such job, or it was just deleted.
        """

    @abc.abstractmethod
    def delete(self, job_id: JobId) -> None:
        """Remove a job with its status and its logs; one that runs is ended.

        Raises:
            JobNotFoundError: There is no such job.
        """

    @abc.abstractmethod
    def terminate(self, job_id: JobId) -> None:
        """Ask a job to end: SIGTERM to its processes, SIGKILL after their grace. `wait` tells when it has.

        A job that has finished, or was asked before, doesn't mind.

        Raises:
            JobNotFoundError: There is no such job.
        """

    def kill(self, job_id: JobId) -> None:
        """End a job that this object runs without any grace; others as `terminate` does."""
        self.terminate(job_id)

    def logs(
        self,
        job_id: JobId,
        *,
        follow: bool = False,
        rank: int | Collection[int] | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        unfinished: bool = False,
    ) -> Iterator[LogLine]:
        """Return the lines that a job's hosts printed, in the order in which they came; none comes twice.

        Args:
            job_id: The job.
            follow: Go on until the job has ended.
            rank: Only the host of this rank, or the hosts of these; all when None.
            attempt: Only this attempt, from 1; all that are kept when None.
            tail: Only so many lines, the last, of what was printed so far in the attempt or the latest one;
                with `follow` all that comes then.
            unfinished: With `follow`, also the states of a line that a program writes over and over, as
                progress bars do: at most two a second for each host, each a line with `unfinished`. From
                pods they come in steps: containerd passes on a line without an end every 4 KiB.

        Without `follow` the lines of an attempt come from pods in the order of their times. Where lines can't
        be had any more, since a log was rotated or a pod deleted, a line with `gap` says so. Ray's jobs have
        whole lines only.

        Raises:
            JobNotFoundError: There is no such job.
            LogsNotFoundError: It has no such rank or attempt.
            SurroundingsError: The cluster can't be asked; also while iterating, as a `ClusterClosedError`
                where the object is closed during that.
        """
        check_whole_number("tail", tail)
        return self._read_logs(job_id, LogChoice(follow, rank, attempt, tail, unfinished))

    @abc.abstractmethod
    def _read_logs(self, job_id: JobId, choice: LogChoice) -> Iterator[LogLine]:
        """Return the lines that are chosen; see `logs`."""

    def get_actors(self) -> list[FrayActor]:
        """Return all FrayActors, sorted by name; none where a place has no such resource."""
        return []

    def find_actor(self, name: str) -> FrayActor:
        """Return a FrayActor by its own name, or by the one that programs call it by.

        Raises:
            ActorNotFoundError: There is none.
            AmbiguousActorError: Several jobs have one that is called so.
        """
        actors = self.get_actors()
        for actor in actors:
            if actor.metadata.name == name:
                return actor
        called = [actor for actor in actors if actor.spec.name == name]
        if len(called) == 1:
            return called[0]
        if called:
            raise AmbiguousActorError(name, tuple(actor.metadata.name for actor in called))
        raise ActorNotFoundError(name, tuple(sorted({actor.spec.name for actor in actors})))

    def get_actor(self, name: str) -> ActorHandle[Any]:
        """Return the handle of an actor by which this process calls it; see `find_actor` for `name`.

        `GROUP-INDEX` is a member of a group, unless an actor is called so.

        Raises:
            ActorNotFoundError: There is none.
            AmbiguousActorError: Several jobs have one that is called so.
        """
        actor, index = self._find_member(name)

        from fray.job.named_actors import build_handles  # noqa: PLC0415 - loads what few need
        from fray.runtime.actors.objects import member_of  # noqa: PLC0415

        member = member_of(actor.to_manifest(), name)
        return build_handles(member, index + 1, None, self._reach())[index]

    def _find_member(self, name: str) -> tuple[FrayActor, int]:
        from fray.runtime.actors.identity import split_member  # noqa: PLC0415 - loads what few need

        try:
            return self.find_actor(name), 0
        except ActorNotFoundError:
            if (member := split_member(name)) is not None:
                group, index = member
                with suppress(ActorNotFoundError):
                    actor = self.find_actor(group)
                    if index < actor.spec.replicas:
                        return actor, index
            raise

    def _reach(self) -> Reach:
        """Return how this process calls the actors of this place."""
        raise UnsupportedFeatureError("calling actors", "there are none here", "Use another cluster.")

    def create_actor(  # noqa: PLR0913 - as that of a context
        self,
        cls: Callable[..., A],
        /,
        *args: Any,
        name: str,
        get_if_exists: bool = False,
        lifetime: Lifetime | str | None = None,
        preemptible: bool = True,
        num_cpus: float | None = None,
        max_task_retries: int | None = None,
        idle_timeout: float | None = None,
        options: ActorOptions | None = None,
        resources: ResourceConfig | None = None,
        environment: EnvironmentConfig | None = None,
        actor_config: ActorOptions | None = None,
        **kwargs: Any,
    ) -> ActorHandle[A]:
        """Create an actor that belongs to no job, and lives until it is ended; return its handle.

        Args:
            cls: Its class, which is pickled with the arguments of its constructor.
            *args: Some of those.
            name: What `get_actor` finds it by, here and in jobs.
            get_if_exists: Whether the actor that has the name is returned, instead of `ActorExistsError`.
            lifetime: "detached", as it is without: it belongs to no job.
            preemptible: Whether it may run on spot nodes.
            num_cpus: Cores that it asks for, in place of those of `resources`; with 0 a thousandth.
            max_task_retries: How often a call is made again that was lost with it; -1: without limit.
            idle_timeout: Seconds without a call after which it ends for good.
            options: Of it: `max_concurrency`, `max_restarts`, and those above.
            resources: What it runs on; as of a job when None.
            environment: What it finds there; as of a job when None.
            actor_config: What an earlier API calls `options`.
            **kwargs: The other arguments of the constructor.

        Raises:
            ActorExistsError: An actor has the name, and `get_if_exists` is false.
            RequestError: It can't be created as it is.
            UnsupportedFeatureError: There are no such actors here.
        """
        from fray.job.calls import actor_options  # noqa: PLC0415 - as above
        from fray.job.options import Lifetime  # noqa: PLC0415

        new = actor_options(
            options or actor_config,
            name=name,
            get_if_exists=get_if_exists,
            lifetime=lifetime,
            preemptible=True,
            num_cpus=None,
            max_task_retries=max_task_retries,
            idle_timeout=idle_timeout,
        )
        if lifetime is not None and new.lifetime is not Lifetime.DETACHED:
            raise InvalidOptionError("lifetime", repr(lifetime), "detached: it belongs to no job")
        if num_cpus is not None:
            resources = replace(resources or ResourceConfig(), cpu=num_cpus or LEAST_CPU)
        if not preemptible:
            resources = replace(resources or ResourceConfig(), preemptible=False)
        request = _build_request(cls, args, kwargs, resources, environment)
        (handle,) = self._create_actors(request, new, 1)
        return handle

    def create_actor_group(  # noqa: PLR0913 - one parameter for each option
        self,
        cls: Callable[..., A],
        /,
        *args: Any,
        name: str,
        count: int,
        options: ActorOptions | None = None,
        resources: ResourceConfig | None = None,
        environment: EnvironmentConfig | None = None,
        actor_config: ActorOptions | None = None,
        **kwargs: Any,
    ) -> ActorGroup[A]:
        """Create `count` members of a group, which belongs to no job; return it. See `create_actor`.

        A member learns its index from `fray.job.current_actor()` in its constructor.
        """
        from fray.job.actor_groups import ActorGroup  # noqa: PLC0415 - as above
        from fray.job.checks import check_count  # noqa: PLC0415
        from fray.job.named_actors import end_named_actor  # noqa: PLC0415
        from fray.job.options import ActorOptions  # noqa: PLC0415

        check_count("count", count, 1)
        new = replace(options or actor_config or ActorOptions(), name=name)
        request = _build_request(cls, args, kwargs, resources, environment, group=name)
        return ActorGroup(name, self._create_actors(request, new, count), end_named_actor)

    def _create_actors(
        self,
        request: JobRequest,  # noqa: ARG002 - for those who can
        options: ActorOptions,
        count: int,  # noqa: ARG002
    ) -> Sequence[ActorHandle[Any]]:
        """Create the members of an actor, each as a job of the request would run; return their handles."""
        alternative = "Create it in a job, by the context: get_default_job_ctx().create_actor(...)."
        raise UnsupportedFeatureError(f"actor {options.name!r}", "actors belong to jobs", alternative)

    def host_actor(
        self,
        made_by: Callable[..., A] | A,
        /,
        *args: Any,
        name: str,
        options: ActorOptions | None = None,
        actor_config: ActorOptions | None = None,
        **kwargs: Any,
    ) -> HostedActor[A]:
        """Serve an object of this process as an actor, which others call; see `fray.job.host_actor`.

        In a process of a job that is an actor of the job's root; in another program on this machine, one that
        all programs find which share the state directory.

        Raises:
            ActorExistsError: An actor that lives has the name.
            InvalidOptionError: There are arguments, and `made_by` is an object.
            UnsupportedFeatureError: Others can't call this process, as pods can't one outside of the cluster.
            TransportError: The server can't be started.
            Exception: What the constructor raises.
        """
        from fray.job.hosted_actors import serve  # noqa: PLC0415 - loads what few need

        hosted: HostedActor[A] = serve(
            self._hosting(name), made_by, args, kwargs, name, options or actor_config
        )
        return hosted

    def _hosting(self, name: str) -> Hosting:
        """Return how this process hosts an actor."""
        alternative = "Create it in a job, by the context: get_default_job_ctx().create_actor(...)."
        raise UnsupportedFeatureError(f"hosting actor {name!r}", "actors belong to jobs", alternative)

    def delete_actor(self, actor: FrayActor) -> None:
        """Delete a FrayActor: its members are ended, and their logs are gone. One that is gone is fine."""
        raise ActorNotFoundError(actor.metadata.name)

    def actor_logs(
        self, actor: FrayActor, *, follow: bool = False, member: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Return the lines that an actor's members printed; `slice_index` of a line is the member.

        Args:
            actor: The actor, as it was read.
            follow: Go on until the actor has ended or was deleted.
            member: Only the member of this index; all when None.
            tail: Only so many lines, the last of those printed so far.
        """
        del follow, member, tail
        raise ActorNotFoundError(actor.metadata.name)

    def run_command(
        self, job_id: JobId, command: Sequence[str], *, rank: int = 0, streams: CommandStreams
    ) -> int:
        """Run a command beside a job's program, in the running container of one host; return its exit code.

        Args:
            job_id: The job.
            command: Program and arguments; a container's own, no shell's.
            rank: The host.
            streams: What it reads and writes.

        Raises:
            JobNotFoundError: There is no such job.
            LogsNotFoundError: It has no such rank.
            HostNotRunningError: That host doesn't run.
            CommandNotRunError: The container can't run the command.
            UnsupportedFeatureError: Hosts are no containers here.
        """
        del command, rank, streams
        self.get(job_id)
        raise UnsupportedFeatureError(f"a command in a host of job {job_id!r}", *self._no_command)

    def read_pool(self, job_id: JobId) -> PoolView:
        """Return what the pool of a running job has and does now.

        Raises:
            JobNotFoundError: There is no such job.
            HostNotRunningError: Its rank 0 doesn't run.
            PoolNotShownError: It has no pool, or the head doesn't answer.
            UnsupportedFeatureError: Pools can't be reached here.
        """
        self.get(job_id)
        reason = "its processes can't be reached"
        alternative = "Call `ctx.stats()` in the job."
        raise UnsupportedFeatureError(f"showing the pool of job {job_id!r}", reason, alternative)

    def open_dashboard(self, job_id: JobId) -> Dashboard:
        """Return the dashboard of the engine of a running job, at a port of this machine.

        Raises:
            JobNotFoundError: There is no such job.
            HostNotRunningError: Its rank 0 doesn't run.
            PoolNotShownError: Its engine has no dashboard.
            UnsupportedFeatureError: Jobs have no engine of their own here.
        """
        self.get(job_id)
        reason = "jobs have workers of engine ray or dask on Kubernetes only"
        alternative = "Ray and Dask print where their own dashboards are."
        raise UnsupportedFeatureError(f"the dashboard of job {job_id!r}", reason, alternative)

    @abc.abstractmethod
    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable: the value of rank 0, or the exception that ended the job.

        None where there is nothing of that kind: a program, a job that has not finished, or one that was
        stopped.

        Raises:
            JobNotFoundError: There is no such job.
            OutcomeUnreadableError: It was kept, and isn't what the job's status tells of.
        """

    @abc.abstractmethod
    def outcomes(self, job_id: JobId) -> list[Outcome]:
        """Return what every rank of a job returned as a `RankValue`: by slice, and in each slice by host.

        One whose value can't be had has the problem in it. Empty where the job is no callable's, or hasn't
        succeeded.

        Raises:
            JobNotFoundError: There is no such job.
        """

    @abc.abstractmethod
    def wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None = None, *, fail_fast: bool = False
    ) -> list[FrayJob]:
        """Return jobs once all have finished, or as they are once `timeout` seconds have passed.

        In the order of the ids, which may hold one twice; as few watches as can be, and no busy polling. With
        `fail_fast` it also returns once one of them has ended in anything but success.

        Raises:
            JobNotFoundError: There is no such job, or it was just deleted.
        """

    @abc.abstractmethod
    def examine(self) -> list[CheckResult]:
        """Look at what jobs need, and return what was found; each result that is wrong says what to do."""

    def preview(self, wanted: JobRequest | FrayJob, *, workspace: Path | None = None) -> Preview:  # noqa: ARG002
        """Return what launching a request, or creating a job, would create; nothing is sent or staged.

        Args:
            wanted: The request or the job.
            workspace: The directory that goes along with a job; a request names its own.

        Raises:
            RequestError: It can't be run as it is.
            UnsupportedFeatureError: Jobs are no objects of Kubernetes here.
        """
        alternative = "Use `fray.cluster.KubernetesCluster`, which sends nothing for it."
        raise UnsupportedFeatureError("a preview", "jobs are no objects of Kubernetes here", alternative)

    def read_topology(self, job: FrayJob) -> ClusterTopology:  # noqa: ARG002 - most backends have none
        """Return what there is to keep the hosts of a job together."""
        return NOTHING_READ

    def close(self) -> None:  # noqa: B027 - most backends hold nothing
        """Let go of what this object holds; jobs of other processes are left alone. May be called again."""

    # A text is a sequence of texts as well, and counts as one id.
    @overload
    def wait(  # type: ignore[overload-overlap]
        self,
        job_ids: JobId | str,
        *,
        raise_on_failure: bool = False,
        fail_fast: bool = False,
        timeout: float | None = None,
    ) -> JobInfo: ...

    @overload
    def wait(
        self,
        job_ids: Sequence[JobId],
        *,
        raise_on_failure: bool = False,
        fail_fast: bool = False,
        timeout: float | None = None,
    ) -> list[JobInfo]: ...

    def wait(
        self,
        job_ids: JobId | str | Sequence[JobId],
        *,
        raise_on_failure: bool = False,
        fail_fast: bool = False,
        timeout: float | None = None,
    ) -> JobInfo | list[JobInfo]:
        """Return how jobs ended, once every one of them has: one for an id, a list for a list, in its order.

        Args:
            job_ids: An id, or several.
            raise_on_failure: Raise where a job ended in anything but success.
            fail_fast: Raise so as soon as one has, whatever `raise_on_failure` is, without waiting for the
                others, which run on.
            timeout: Seconds to wait at most; None waits for as long as it takes.

        Raises:
            InvalidRequestError: An id is no text, or `timeout` no number of seconds.
            JobNotFoundError: There is no such job.
            WaitTimeoutError: Not all have finished in time; they run on. It is a TimeoutError, too.
            JobFailedError, JobStoppedError: One job didn't succeed; the exception that its callable raised is
                the error's cause, with its type and its remote traceback. These are RuntimeErrors.
            JobsFailedError: Several didn't.
        """
        ids = check_job_ids(job_ids)
        check_seconds("timeout", timeout)
        jobs = self.wait_finished(ids, timeout, fail_fast=fail_fast) if ids else []
        infos = [describe_frayjob(job) for job in jobs]
        if fail_fast:
            raise_first_failure(infos, self.outcome)
        unfinished = tuple(info.job_id for info in infos if not JobStatus.finished(info.status))
        if unfinished:
            assert timeout is not None
            raise WaitTimeoutError(unfinished, timeout)
        if raise_on_failure:
            raise_failures(infos, self.outcome)
        return infos[0] if isinstance(job_ids, str) else infos

    def monitor(self, job_id: JobId) -> MonitoredJob:
        """Log each line that a job prints, and return how it ended; iterating over that gives the lines.

        Lines go to the logger `fray.cluster.base` with level INFO. The result holds the last
        `MONITORED_LINES`.

        Raises:
            JobNotFoundError: There is no such job.
        """
        lines: deque[str] = deque(maxlen=MONITORED_LINES)
        for line in self.logs(job_id, follow=True):
            text = str(line)
            logger.info("%s", text)
            lines.append(text)
        info = self.wait(job_id)
        known = {field.name: getattr(info, field.name) for field in fields(info)}
        return MonitoredJob(**known, lines=tuple(lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _build_request(
    cls: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    resources: ResourceConfig | None,
    environment: EnvironmentConfig | None,
    *,
    group: str = "",
) -> JobRequest:
    """Return the job whose one host would be as a member of an actor is; `group`: of which it is a member."""
    from fray.job.actor_groups import GroupMember  # noqa: PLC0415 - which clients without actors don't need
    from fray.job.checks import check_class  # noqa: PLC0415

    check_class(cls)
    name = getattr(cls, "__name__", type(cls).__name__)
    construct = GroupMember(cls, group) if group else cls
    request = JobRequest(name, Entrypoint.from_callable(construct, args, kwargs), environment=environment)
    return request if resources is None else replace(request, resources=resources)
