"""Jobs of a Python program on its own machine: a process for each host, without Kubernetes.

A program launches, waits and reads here as it would on a cluster; the processes are run as `fray run` runs
them, and every shell sees the jobs (`fray list`, `fray logs`, `fray stop`). They end with the program that
launched them. How a job is run is the package `local`.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fray.cluster.answers import CheckResult, Mark
from fray.cluster.arguments import LogChoice, WhenTaken, check_job_id, check_launch, check_whole_number
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.current import set_current_cluster
from fray.cluster.local.callables import read_outcome, read_outcomes, write_payload
from fray.cluster.local.claims import JobLocks, claim_job, remove_expired, take_name
from fray.cluster.local.jobs import JobWatch, StrangersJob, list_jobs, observe_job
from fray.cluster.local.launched import LaunchedJob, LaunchedJobWatch
from fray.cluster.local.log_lines import LineReader
from fray.cluster.local.requests import LocalRequest, prepare_job, prepare_request
from fray.cluster.local.runner import build_retry_policy
from fray.cluster.local.store import StateDirectory
from fray.cluster.manifest import find_parent
from fray.cluster.progress import describe_frayjob, is_resumable
from fray.errors import FrayError, JobExistsError, MachineMismatchError, StateDirectoryError
from fray.kube.resources import FRAYACTORS
from fray.payload.outcome import Outcome
from fray.plan.status import has_succeeded, is_finished
from fray.plan.texts import format_count
from fray.runtime.identity import current_identity
from fray.runtime.loop_thread import LoopThread
from fray.settings import Settings
from fray.types import JobId, JobRequest, JobStatus, LogLine
from fray.wire.frayjob import FrayJob, Parent

if TYPE_CHECKING:
    from fray.job.actors import ActorHandle
    from fray.job.hosted_actors import Hosting
    from fray.job.options import ActorOptions
    from fray.runtime.actors.local_pod import LocalReach
    from fray.runtime.pool.view import PoolView
    from fray.wire.frayactor import FrayActor

__all__ = ["LocalCluster", "LocalClusterConfig"]

logger = logging.getLogger(__name__)

LocalClusterConfig = LocalSpec
"""The name of an earlier API."""

CLOSE_GRACE_SECONDS: Final = 5.0
"""Between SIGTERM and SIGKILL for jobs that live when their program ends."""
CLOSE_SECONDS: Final = 20.0
"""Killed processes are waited for that long; more than a supervisor needs to clean up."""
KEPT_FINISHED: Final = 100
"""Jobs that have ended and are still shown from memory; earlier ones are read from their files."""
STRANGERS_PAUSE: Final = 0.25
"""Seconds between two looks at jobs of other processes; those of this one are waited for without any."""


class LocalCluster(Cluster):
    """The machine of this process. Jobs launched here end with this process, at the latest by `close`.

    It can be pickled for other processes of the machine: there it is another object, with the variables of
    that process, which sees the same jobs.

    Args:
        config: What the cluster spec says: `LocalSpec(use_isolated_env=True)` gives each job a virtual
            environment of its own, `LocalSpec(mode="thread")` runs callables in threads of this program.
        environ: The variables that settings are read from and processes inherit; this process's when None.
        working_dir: Where all processes start, whatever their jobs say.

    Raises:
        SettingError: A variable holds what it can't mean.
    """

    def __init__(
        self,
        config: LocalSpec | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        working_dir: Path | None = None,
    ) -> None:
        self._spec = LocalSpec() if config is None else config
        self._environ = environ
        self._working_dir = working_dir
        self._settings = Settings.from_env(self._variables)
        self._state = StateDirectory(self._settings.state_dir)
        self._begin()

    @classmethod
    def from_spec(cls, spec: LocalSpec) -> Cluster:
        """Return the cluster that a spec names."""
        return cls(spec)

    @property
    def spec(self) -> LocalSpec:
        """What this cluster is in a cluster spec."""
        return self._spec

    def launch(self, request: JobRequest, *, when_taken: WhenTaken = "rename") -> JobId:
        """Start a job and return its id; see `Cluster.launch`.

        Raises:
            RequestError: The request can't be run on this machine; nothing was started.
            JobExistsError: A job of this name lives, and `when_taken` is `refuse`.
            StateDirectoryError: The state directory can't be written.
            OpenFilesError: The gang is too large for the limit of open files.
        """
        check_launch(request, when_taken)
        parent = self._find_parent()
        if when_taken == "rename" or (when_taken == "resume" and parent is None):
            return self._launch(request, parent)
        with self._state.launching():
            if when_taken == "resume":
                living = self._find_child(request.name, parent)
            else:
                living = self._find_living(request.name)
            if living is None:
                return self._launch(request, parent)
        if when_taken == "refuse":
            raise JobExistsError(living)
        self._resumed.add(living)
        return living

    def _launch(self, request: JobRequest, parent: Parent | None) -> JobId:
        prepared = prepare_request(
            request,
            self._spec,
            self._settings,
            self._variables,
            parent=parent,
            enter=partial(set_current_cluster, self),
        )
        return self._start(prepared, *claim_job(self._state, request.name))

    def _start(self, prepared: LocalRequest, job_id: str, locks: JobLocks) -> JobId:
        """Start a job under an id whose folder and locks are there; they go where that fails."""
        if not self._loop.belongs_here:
            self._begin()  # a fork: what its parent launched is a stranger's here
        folder = self._state.job(job_id)
        try:
            job, workplace = prepared.under(job_id, folder)
            if self._working_dir is not None:
                workplace = replace(workplace, fixed_dir=str(self._working_dir.absolute()))
            if prepared.payload is not None:
                write_payload(folder, prepared.payload)
            launched = LaunchedJob(
                job,
                state=self._state,
                locks=locks,
                workplace=workplace,
                policy=build_retry_policy(self._settings.backoff_seconds),
                finished=self._tell_finished,
            )
            # A search for a living job of its name must find it from now on.
            folder.write(launched.job)
        except BaseException:
            folder.remove()
            locks.release()
            raise
        if prepared.notices:
            notices = "\n  ".join(prepared.notices)
            logger.info(
                "%s runs on this machine; what only a cluster has is left out:\n  %s", job_id, notices
            )
        for version in prepared.versions:  # a program without logging sees warnings alone
            logger.warning("%s: %s", job_id, version)
        self._launched[job_id] = launched
        self._loop.start(launched.run())
        return JobId(job_id)

    def create(self, job: FrayJob, *, directory: Path | None = None, workspace: Path | None = None) -> JobId:
        """Start a job as its FrayJob says; see `Cluster.create`. A finished one of its name makes room.

        Raises:
            RequestError: It can't be run on this machine; nothing was started.
            JobRunningError: A job of this name lives.
            StateDirectoryError: The state directory can't be written.
            OpenFilesError: The gang is too large for the limit of open files.
        """
        prepared = prepare_job(job, self._spec, self._variables, workspace or directory)
        return self._start(prepared, *take_name(self._state, job.metadata.name))

    @property
    def has_launched(self) -> bool:
        """Whether this object has launched a job; see `Cluster.has_launched`."""
        return bool(self._own())

    @property
    def place(self) -> str:
        """The state directory."""
        return str(self._state.root)

    def get(self, job_id: JobId) -> FrayJob:
        """Return a job as it is now; see `Cluster.get`."""
        return self._watch(job_id).look()[0]

    def get_all(self) -> list[FrayJob]:
        """Return all jobs of this machine, those of other processes included, sorted by name."""
        jobs = {job.metadata.name: job for job in list_jobs(self._state)}
        jobs |= {name: launched.job for name, launched in self._own().items()}
        return [jobs[name] for name in sorted(jobs)]

    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        """Yield a job as it is now, then after each change, until it has ended; see `Cluster.watch`."""
        watch = self._watch(job_id)
        yielded: FrayJob | None = None
        while True:
            job, ended = watch.look()
            if job != yielded:
                yielded = job
                yield job
            if ended:
                return
            watch.pause()

    def delete(self, job_id: JobId) -> None:
        """Remove a job's folder, once it has ended; see `Cluster.delete`."""
        self.terminate(job_id)
        self.wait_finished([job_id])
        self._launched.pop(job_id, None)
        folder = self._state.job(job_id)
        locks = JobLocks.acquire(folder, name=job_id, waiting=lambda: None)
        job = folder.read()
        folder.remove()
        locks.release()
        if job is not None and self._state.actors.exists():
            from fray.runtime.actors.local_pod import remove_folders  # noqa: PLC0415 - loads what few ask for

            api, uid = self._reach().api, job.metadata.uid or ""
            api.remove_owned(uid)
            remove_folders(api, uid)

    def terminate(self, job_id: JobId) -> None:
        """Ask a job to end; see `Cluster.terminate`."""
        launched = self._own().get(check_job_id(job_id))
        if launched is None:
            job = observe_job(self._state, job_id)
            if not is_finished(job.status):
                self._state.job(job_id).request_stop()
        elif not launched.finished:
            self._loop.call(launched.stop)

    def kill(self, job_id: JobId) -> None:
        """End a job that this object launched at once; others as `terminate` does."""
        launched = self._own().get(check_job_id(job_id))
        if launched is None:
            self.terminate(job_id)
        elif not launched.finished:
            self._loop.call(launched.kill)

    def _read_logs(self, job_id: JobId, choice: LogChoice) -> Iterator[LogLine]:
        watch = self._watch(job_id)
        reader = LineReader(JobId(job_id), self._state.job(job_id), choice)
        reader.check(watch.look()[0])
        return reader.read(watch)

    def read_pool(self, job_id: JobId) -> PoolView:
        """Return what the pool of a job's program has and does now; see `Cluster.read_pool`."""
        self.get(job_id)
        from fray.cluster.local.pools import read_pool  # noqa: PLC0415 - loads the pool, which few ask for

        return read_pool(job_id)

    def get_actors(self) -> list[FrayActor]:
        """Return all FrayActors of the state directory, sorted by name."""
        from fray.cluster.local.actors import list_actors  # noqa: PLC0415 - loads what few ask for

        return list_actors(self._reach().api)

    def delete_actor(self, actor: FrayActor) -> None:
        """Delete a FrayActor: its members end within a second; see `Cluster.delete_actor`."""
        self._reach().api.delete(FRAYACTORS, actor.metadata.name, uid=actor.metadata.uid)

    def actor_logs(
        self, actor: FrayActor, *, follow: bool = False, member: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Return the lines that an actor's members printed, one member after the other, without times.

        See `Cluster.actor_logs`.
        """
        from fray.cluster.local.actor_logs import read_actor_logs  # noqa: PLC0415 - loads what few ask for

        check_whole_number("tail", tail)
        return read_actor_logs(self._reach().api, actor, follow=follow, member=member, tail=tail)

    def _reach(self) -> LocalReach:
        from fray.runtime.actors.local_pod import LocalReach  # noqa: PLC0415 - loads what few ask for

        return LocalReach(self._state.root)

    def _create_actors(
        self, request: JobRequest, options: ActorOptions, count: int
    ) -> Sequence[ActorHandle[Any]]:
        from fray.job.calls import Call  # noqa: PLC0415 - as above
        from fray.job.named_actors import NamedActors  # noqa: PLC0415
        from fray.job.options import Lifetime  # noqa: PLC0415
        from fray.runtime.actors.objects import ActorObjects  # noqa: PLC0415

        made_by = request.resolve_entrypoint().callable_entrypoint
        assert made_by is not None
        call = Call(made_by.callable, tuple(made_by.args), made_by.kwargs)
        reach = self._reach()
        actors = NamedActors(ActorObjects(reach.api), reach)
        handles = actors.create_group(call, replace(options, lifetime=Lifetime.DETACHED), count)
        reach.start()  # with the directory and the variables of this program, not of who calls it first
        return handles

    def _hosting(self, name: str) -> Hosting:  # noqa: ARG002 - any process of this machine can
        from fray.job.hosted_actors import find_local_hosting, host_on_machine  # noqa: PLC0415 - as above

        own = find_local_hosting(os.environ)  # noqa: TID251 - whether this is the process of a job
        return own or host_on_machine(self._state.root, detached=True)

    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable; see `Cluster.outcome`."""
        job, _ = self._watch(job_id).look()
        return read_outcome(self._state.job(job_id), job, describe_frayjob(job).status)

    def outcomes(self, job_id: JobId) -> list[Outcome]:
        """Return what every rank of a job returned; see `Cluster.outcomes`."""
        job, _ = self._watch(job_id).look()
        return read_outcomes(self._state.job(job_id), job)

    def examine(self) -> list[CheckResult]:
        """Look at what jobs need; see `Cluster.examine`."""
        python = f"{sys.version_info.major}.{sys.version_info.minor} at {sys.executable}"
        results = [CheckResult("Python", Mark.OK, python)]
        root = self._state.root
        try:
            names = self._state.job_names()
            existing = next((each for each in (root, *root.parents) if each.exists()), root)
        except FrayError as error:
            return [*results, CheckResult("state directory", Mark.WRONG, error.message, error.next_step)]
        if not os.access(existing, os.W_OK | os.X_OK):
            step = "Make it writable, or choose another with FRAY_STATE_DIR."
            seen = f"{existing} can't be written"
            return [*results, CheckResult("state directory", Mark.WRONG, seen, step)]
        seen = f"{root}, {format_count(len(names), 'job')}"
        return [*results, CheckResult("state directory", Mark.OK, seen)]

    def close(self) -> None:
        """End the jobs that this object launched and that still live, and wait for that; at most 25 s."""
        _end_jobs(self._loop, self._launched, self._finished)

    def wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None = None, *, fail_fast: bool = False
    ) -> list[FrayJob]:
        """Return jobs once all have ended; see `Cluster.wait_finished`."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        launched = self._own()
        own = [launched[job_id] for job_id in job_ids if job_id in launched]
        strangers = [StrangersJob(self._state, job_id) for job_id in job_ids if job_id not in launched]
        while True:
            looks = [stranger.look() for stranger in strangers]
            pause = None if all(ended for _, ended in looks) else STRANGERS_PAUSE
            with self._finished:  # the end of a job of this process is noted while it is held
                looks += [job.see()[:2] for job in own]
                if all(ended for _, ended in looks):
                    break
                if fail_fast and any(ended and not has_succeeded(job.status) for job, ended in looks):
                    break
                if give_up_at is not None:
                    left = give_up_at - time.monotonic()
                    if left <= 0:
                        break
                    pause = left if pause is None else min(left, pause)
                self._finished.wait(pause)
        return [self.get(job_id) for job_id in job_ids]

    @property
    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environ is None else self._environ  # noqa: TID251 - a process's entry

    def _begin(self) -> None:
        self._loop = LoopThread("fray-local-cluster", cancels=False)
        self._launched: dict[str, LaunchedJob] = {}
        self._resumed: set[JobId] = set()
        self._finished = threading.Condition()
        # Called when the interpreter ends, or before, when nobody has this object any more: a job that lives
        # keeps it, so then there is only the thread to end.
        weakref.finalize(self, _end_jobs, self._loop, self._launched, self._finished)
        threading.Thread(target=_remove_expired, args=(self._state,), name="fray-expiry", daemon=True).start()

    def _own(self) -> Mapping[str, LaunchedJob]:
        # A copy: other threads may launch at the same time.
        return dict(self._launched) if self._loop.belongs_here else {}

    def _watch(self, job_id: str) -> JobWatch:
        launched = self._own().get(check_job_id(job_id))
        return StrangersJob(self._state, job_id) if launched is None else LaunchedJobWatch(launched)

    def _find_living(self, name: str) -> JobId | None:
        infos = self.list_jobs()
        return next((i.job_id for i in infos if i.name == name and not JobStatus.finished(i.status)), None)

    def _find_child(self, name: str, parent: Parent | None) -> JobId | None:
        mine = {*self._own(), *self._resumed}
        children = (job for job in list_jobs(self._state) if is_resumable(job, name, parent))
        return next((JobId(job.metadata.name) for job in children if job.metadata.name not in mine), None)

    def _find_parent(self) -> Parent | None:
        """Return the job that the caller belongs to, which may be a thread that plays one of its hosts."""
        host_of = self._own().get(current_identity().job) if self._spec.mode == "thread" else None
        if host_of is None:
            return find_parent(self._variables)
        above = host_of.job.spec.parent
        name = host_of.job.metadata.name
        return Parent(name=name, root=name if above is None else above.root or above.name)

    def _tell_finished(self) -> None:
        with self._finished:
            self._finished.notify_all()
        finished = [job_id for job_id, job in self._own().items() if job.finished]
        for job_id in finished[:-KEPT_FINISHED]:
            self._launched.pop(job_id, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._spec, self._settings.to_env(), platform.node())


def _attach(spec: LocalSpec, settings: Mapping[str, str], machine: str) -> LocalCluster:
    """Return what was pickled; raises `MachineMismatchError` on another machine than that of its jobs."""
    if machine != platform.node():
        raise MachineMismatchError(machine, platform.node())
    environ = {**os.environ, **settings}  # noqa: TID251 - a process's entry
    return LocalCluster(spec, environ=environ)


def _end_jobs(loop: LoopThread, launched: Mapping[str, LaunchedJob], finished: threading.Condition) -> None:
    if not loop.belongs_here:
        return
    # A copy: other threads may launch at the same time.
    living = [job for job in list(launched.values()) if not job.finished]
    for end, seconds in ((LaunchedJob.stop, CLOSE_GRACE_SECONDS), (LaunchedJob.kill, CLOSE_SECONDS)):
        for job in living:
            if not job.finished:
                loop.call(partial(end, job))
        with finished:
            finished.wait_for(lambda: all(job.finished for job in living), seconds)
    loop.close()


def _remove_expired(state: StateDirectory) -> None:
    try:
        remove_expired(state, datetime.now(UTC))
    except StateDirectoryError as error:
        logger.debug("jobs whose time is up were not removed: %s", error)
