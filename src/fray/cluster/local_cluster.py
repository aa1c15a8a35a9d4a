"""Jobs of a Python program on its own machine: a process for each host, without Kubernetes.

A program launches, waits and reads here as it would on a cluster; the processes are run as `fray run` runs
them, and every shell sees the jobs (`fray list`, `fray logs`, `fray stop`). They end with the program that
launched them. How a job is run is the package `local`.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fray.cluster.arguments import check_job_id, check_launch
from fray.cluster.base import Cluster, WhenTaken
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.current import set_current_cluster
from fray.cluster.local.callables import read_outcome, write_payload
from fray.cluster.local.claims import claim_job, remove_expired
from fray.cluster.local.jobs import list_jobs, observe_job
from fray.cluster.local.launched import LaunchedJob, LaunchedJobWatch
from fray.cluster.local.log_lines import LineReader
from fray.cluster.local.loop_thread import LoopThread
from fray.cluster.local.requests import prepare_request
from fray.cluster.local.runner import build_retry_policy
from fray.cluster.local.store import StateDirectory
from fray.cluster.local.watched_job import JobWatch, StrangersJob
from fray.cluster.manifest import find_parent
from fray.cluster.progress import describe_frayjob
from fray.cluster.resuming import is_resumable
from fray.errors import JobExistsError, MachineMismatchError, StateDirectoryError
from fray.payload.outcome import Outcome
from fray.plan.status import has_succeeded, is_finished
from fray.runtime.identity import current_identity
from fray.settings import Settings
from fray.types import JobId, JobInfo, JobRequest, JobStatus, LogLine
from fray.wire.frayjob import FrayJob, Parent

__all__ = ["LocalCluster", "LocalClusterConfig"]

logger = logging.getLogger(__name__)

LocalClusterConfig = LocalSpec
"""The name of an earlier API."""

CLOSE_GRACE_SECONDS: Final = 5.0
"""Between SIGTERM and SIGKILL for jobs that live when their program ends."""
CLOSE_SECONDS: Final = 20.0
"""Killed processes are waited for that long; more than a supervisor needs to clean up."""
KEPT_FINISHED: Final = 100
"""Jobs that have ended and are still told of from memory; of those before, the files tell."""
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

    Raises:
        SettingError: A variable holds what it can't mean.
    """

    def __init__(self, config: LocalSpec | None = None, *, environ: Mapping[str, str] | None = None) -> None:
        self._spec = LocalSpec() if config is None else config
        self._environ = environ
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
        if not self._loop.belongs_here:
            self._begin()  # a fork: what its parent launched is a stranger's here
        job_id, locks = claim_job(self._state, request.name)
        folder = self._state.job(job_id)
        try:
            job, workplace = prepared.under(job_id, folder)
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
            # Whoever looks for a living job of its name must find it from now on.
            folder.write(launched.job)
        except BaseException:
            folder.remove()
            locks.release()
            raise
        if prepared.notices:
            logger.info("job %s: only a cluster has: %s", job_id, "; ".join(prepared.notices))
        self._launched[job_id] = launched
        self._loop.start(launched.run())
        return JobId(job_id)

    def poll(self, job_id: JobId) -> JobInfo:
        """Return how a job stands now; see `Cluster.poll`."""
        return _describe(self._watch(job_id).look()[0])

    def list_jobs(self) -> list[JobInfo]:
        """Return all jobs of this machine, those of other processes included, sorted by id."""
        jobs = {job.metadata.name: job for job in list_jobs(self._state)}
        jobs |= {name: launched.job for name, launched in self._own().items()}
        return [_describe(jobs[name]) for name in sorted(jobs)]

    def terminate(self, job_id: JobId) -> None:
        """Ask a job to end; see `Cluster.terminate`."""
        launched = self._own().get(check_job_id(job_id))
        if launched is None:
            job = observe_job(self._state, job_id)
            if not is_finished(job.status):
                self._state.job(job_id).request_stop()
        elif not launched.finished:
            self._loop.call(launched.stop)

    def logs(
        self, job_id: JobId, *, follow: bool = False, rank: int | None = None, attempt: int | None = None
    ) -> Iterator[LogLine]:
        """Return what a job's processes printed; see `Cluster.logs`."""
        watch = self._watch(job_id)
        reader = LineReader(JobId(job_id), self._state.job(job_id), rank=rank, attempt=attempt)
        reader.check(watch.look()[0])
        return reader.read(watch, follow=follow)

    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable; see `Cluster.outcome`."""
        job, _ = self._watch(job_id).look()
        return read_outcome(self._state.job(job_id), job, _describe(job).status)

    def close(self) -> None:
        """End the jobs that this object launched and that still live, and wait for that; at most 25 s."""
        _end_jobs(self._loop, self._launched, self._finished)

    def _wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None, *, fail_fast: bool
    ) -> list[JobInfo]:
        give_up_at = None if timeout is None else time.monotonic() + timeout
        launched = self._own()
        own = [launched[job_id] for job_id in job_ids if job_id in launched]
        strangers = [StrangersJob(self._state, job_id) for job_id in job_ids if job_id not in launched]
        while True:
            looks = [stranger.look() for stranger in strangers]
            pause = None if all(ended for _, ended in looks) else STRANGERS_PAUSE
            with self._finished:  # the end of a job of this process is told while it is held
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
        return [self.poll(job_id) for job_id in job_ids]

    @property
    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environ is None else self._environ  # noqa: TID251 - a process's entry

    def _begin(self) -> None:
        self._loop = LoopThread("fray-local-cluster")
        self._launched: dict[str, LaunchedJob] = {}
        self._resumed: set[JobId] = set()
        self._finished = threading.Condition()
        # Called when the interpreter ends, or before, when nobody has this object any more: a job that lives
        # keeps it, so then there is only the thread to end.
        weakref.finalize(self, _end_jobs, self._loop, self._launched, self._finished)
        threading.Thread(target=_remove_expired, args=(self._state,), name="fray-expiry", daemon=True).start()

    def _own(self) -> Mapping[str, LaunchedJob]:
        # A copy: other threads may launch meanwhile.
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


def _describe(job: FrayJob) -> JobInfo:
    return describe_frayjob(job.to_manifest())


def _end_jobs(loop: LoopThread, launched: Mapping[str, LaunchedJob], finished: threading.Condition) -> None:
    if not loop.belongs_here:
        return
    # A copy: other threads may launch meanwhile.
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
