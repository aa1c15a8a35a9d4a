"""Jobs on a Ray cluster: what users call. Each is a Ray job, which runs on one node; see docs/ray.md."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from fray.cluster.answers import CheckResult, Mark
from fray.cluster.arguments import LogChoice, WhenTaken, check_job_id, check_launch, find_workspace
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import RaySpec, check_available
from fray.cluster.local.attempt import PLAN_SETTINGS
from fray.cluster.local.callables import ending_file, outcome_file, read_outcome, read_outcomes
from fray.cluster.local.pods import LocalMachine, build_local_pods
from fray.cluster.local.requests import describe_payload, without_secrets
from fray.cluster.local.store import JobFolder
from fray.cluster.local.support import build_notices, check_supported
from fray.cluster.manifest import Uploads, build_manifest, find_parent, mark_launch, rename_job
from fray.cluster.progress import describe_frayjob, get_original_name, is_resumable
from fray.cluster.ray.bundle import Bundle, decode_line
from fray.cluster.ray.submission import (
    RayJob,
    build_metadata,
    build_resources,
    build_submission,
    build_withdrawal,
    derive_job,
    name_devices,
    read_submitted,
    read_withdrawn,
    reports_folder,
)
from fray.cluster.workspace import Archiver, WorkspaceLimits
from fray.errors import (
    ClusterUnavailableError,
    JobExistsError,
    JobNotFoundError,
    RayRefusedError,
)
from fray.payload.callables import Payload, PayloadLimits, encode_callable
from fray.payload.outcome import Outcome
from fray.plan.gang import derive_gang
from fray.plan.jobset import build_attempt
from fray.plan.names import build_object_name
from fray.plan.status import has_succeeded, is_finished
from fray.runtime.loop_thread import LoopThread, iterate
from fray.types import JobId, JobRequest, LogLine
from fray.wire.frayjob import FrayJob, Parent

if TYPE_CHECKING:
    from fray.cluster.ray.job_api import JobApi

__all__ = ["RayCluster"]

logger = logging.getLogger(__name__)

LARGEST: Final = 200 << 20
"""Bytes of a callable, and of a workspace: Ray takes 500 MiB in all."""
FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 1.0
"""Seconds between two looks at a job, doubled from the first to the last: Ray's job API has no watch."""


@dataclass(frozen=True)
class _Launch:
    """A job that is ready to be sent under whichever name is free."""

    job: FrayJob
    grace_seconds: float
    parent: Parent | None = None
    variables: Mapping[str, str] | None = None
    payload: Payload | None = None
    workspace: tuple[bytes, str] | None = field(default=None, repr=False)


class RayCluster(Cluster):
    """The FrayJobs of a Ray cluster, by its job API. Jobs run on without the program that launched them.

    Nothing is sent before the first call. It can be pickled: the other process connects anew.

    Args:
        address: Of Ray's dashboard (`http://head:8265`) or of its head (`head:6379`); None for the Ray of
            RAY_ADDRESS, or of this machine.
        dashboard_address: The same, by the name of an earlier API; counts before `address`.
        environ: Variables of the job that this process belongs to; those of the process when None.

    Raises:
        ClusterSpecError: An address can't be one.
        ClusterUnavailableError: Ray isn't installed here.
    """

    def __init__(
        self,
        address: str | None = None,
        dashboard_address: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        for package in ("ray", "requests"):  # ray alone is Ray without its job API
            if find_spec(package) is None:
                install = "Install it: pip install 'fray[ray]'."
                raise ClusterUnavailableError("ray", f"{package} isn't installed here", install)
        given = dashboard_address or address
        self._spec = RaySpec(address=None if given == "auto" else given)
        self._environ = os.environ if environ is None else environ  # noqa: TID251 - where it is read
        self._archiver = Archiver()
        self._known: set[str] = set()
        """What this object has launched or resumed."""

    _no_apply = (
        "a job on Ray can't change",
        "Use `fray run -f FILE`, and `fray stop NAME` before another job of the name.",
    )
    _no_command = (
        "its hosts are processes of a node of Ray, and no containers",
        "Start the command in a shell of that node: `ray job list` names it.",
    )

    @classmethod
    def from_spec(cls, spec: RaySpec) -> Self:
        """Return the cluster of a spec."""
        check_available(spec)
        return cls(spec.address)

    @property
    def spec(self) -> RaySpec:
        """What this cluster is in a cluster spec."""
        return self._spec

    @property
    def place(self) -> str:
        """The address of Ray's dashboard."""
        return f"Ray at {self._api.address}"

    def launch(self, request: JobRequest, *, when_taken: WhenTaken = "rename") -> JobId:
        """Submit a Ray job and return its id; see `Cluster.launch`.

        A callable goes along by value, and so does the workspace, as an archive.

        Raises:
            RequestError: The request can't be run on Ray; nothing was started.
            JobExistsError: A job of this name lives, and `when_taken` is `refuse`.
            RayUnreachableError, RayRefusedError: Ray doesn't answer, or doesn't take it.
        """
        check_launch(request, when_taken)
        return self._submit(self._prepare(request), request.name, when_taken)

    def create(self, job: FrayJob, *, directory: Path | None = None, workspace: Path | None = None) -> JobId:
        """Submit a FrayJob as it is written, under another name where a finished one has its: `train-2`.

        `directory` means nothing here: what it needs is in `workspace`, or must be on Ray's nodes.
        """
        del directory
        job = mark_launch(job, secrets.token_hex(16))
        archive = None if workspace is None else self._archive(str(workspace))
        launch = _Launch(job, _judge(job), job.spec.parent, workspace=archive)
        return self._submit(launch, job.metadata.name, "refuse")

    def get_runtime_env(self, request: JobRequest) -> dict[str, Any]:
        """Return the environment that Ray makes for a request's job: an earlier API's name.

        The folder that goes along isn't in it.
        """
        request = request.with_environment()
        found: dict[str, Any] = {"env_vars": dict(request.environment.env_vars)}
        if request.environment.pip_packages:
            found["pip"] = list(request.environment.pip_packages)
        return found

    def get_ray_resources(self, request: JobRequest) -> dict[str, float]:
        """Return what a host of a request takes of Ray beyond CPUs and memory: an earlier API's name.

        Raises:
            RequestError: The request means nothing.
        """
        uploads = Uploads(payload=describe_payload(None))
        return name_devices(build_manifest(request.with_environment(), self._spec, uploads=uploads).job.spec)

    def get(self, job_id: JobId) -> FrayJob:
        """Return a job as it is now; see `Cluster.get`."""
        return self._look([job_id])[0]

    def get_all(self) -> list[FrayJob]:
        """Return all FrayJobs of this Ray, no matter who launched them, sorted by name."""
        jobs = self._api.list()
        found = [each for each in jobs if read_submitted(each) is not None]
        return sorted((self._view(each, jobs) for each in found), key=lambda job: job.metadata.name)

    def watch(self, job_id: JobId) -> Iterator[FrayJob]:
        """Yield a job as it is now, then after each change, until it has finished; see `Cluster.watch`."""
        job = self.get(job_id)
        yield job
        pause = FIRST_PAUSE
        while not is_finished(job.status):
            time.sleep(pause)
            now = self.get(job_id)
            pause = FIRST_PAUSE if now != job else min(2 * pause, LAST_PAUSE)
            if now != job:
                job = now
                yield job

    def wait_finished(
        self, job_ids: Sequence[JobId], timeout: float | None = None, *, fail_fast: bool = False
    ) -> list[FrayJob]:
        """Return jobs once all have finished, by one question for all; see `Cluster.wait_finished`."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_PAUSE
        while True:
            jobs = self._look(job_ids)
            ended = [job for job in jobs if is_finished(job.status)]
            left = None if give_up_at is None else give_up_at - time.monotonic()
            if len(ended) == len(jobs) or (left is not None and left <= 0):
                return jobs
            if fail_fast and any(not has_succeeded(job.status) for job in ended):
                return jobs
            time.sleep(pause if left is None else min(pause, left))
            pause = min(2 * pause, LAST_PAUSE)

    def terminate(self, job_id: JobId) -> None:
        """Ask a job to end, by Ray's stop; see `Cluster.terminate`. One that Ray holds back is withdrawn."""
        found, jobs = self._find(job_id)
        if found.ended or any(read_withdrawn(each) == found.id for each in jobs):
            return
        self._api.stop(found.id)
        if found.node is None:
            self._api.submit(build_withdrawal(found.id))

    def delete(self, job_id: JobId) -> None:
        """Let Ray forget a job, once it has ended; its files stay with the logs of Ray's session."""
        self.terminate(job_id)
        pause = FIRST_PAUSE
        while not (asked := self._find(job_id))[0].ended:
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)
        for each in asked[1]:
            if each.ended and job_id in (each.id, read_withdrawn(each)):
                self._api.delete(each.id)

    def _read_logs(self, job_id: JobId, choice: LogChoice) -> Iterator[LogLine]:
        job = self.get(job_id)
        latest = job.status.attempt or 0
        ranks = choice.find_ranks(job, range(1, latest + 1))
        return self._read(job_id, choice, ranks, latest or 1)

    def outcome(self, job_id: JobId) -> Outcome | None:
        """Return what became of a job's callable; see `Cluster.outcome`."""
        found, jobs = self._find(job_id)
        job = self._view(found, jobs)
        rank = (job.status.attempts[-1].rank or 0) if job.status.attempts else 0
        with self._copy_ends(found, job, [rank]) as folder:
            return None if folder is None else read_outcome(folder, job, describe_frayjob(job).status)

    def outcomes(self, job_id: JobId) -> list[Outcome]:
        """Return what every rank of a job returned; see `Cluster.outcomes`."""
        found, jobs = self._find(job_id)
        job = self._view(found, jobs)
        with self._copy_ends(found, job, range(derive_gang(job.spec).hosts)) as folder:
            return [] if folder is None else read_outcomes(folder, job)

    @contextmanager
    def _copy_ends(self, found: RayJob, job: FrayJob, ranks: Iterable[int]) -> Iterator[JobFolder | None]:
        """Copy what processes of the last attempt left on its node; None where the job never ran on one."""
        if found.node is None or not job.status.attempts:
            yield None
            return
        with tempfile.TemporaryDirectory() as copied:
            folder = JobFolder(Path(copied))
            logs = folder.attempt_logs(job.status.attempts[-1].number)
            logs.mkdir(parents=True)
            there = f"{reports_folder(job)}/jobs/{found.id}/logs/{logs.name}"
            for rank in ranks:
                for file in (ending_file(logs, rank), outcome_file(logs, rank)):
                    content = self._api.read_file(found.node, f"{there}/{file.name}")
                    if content is not None:
                        file.write_bytes(content)
            yield folder

    def examine(self) -> list[CheckResult]:
        """Look at what jobs need; see `Cluster.examine`."""
        seen = f"version {self._api.version()} of its job API, at {self._api.address}"
        return [CheckResult("Ray", Mark.OK, seen)]

    @cached_property
    def _api(self) -> JobApi:
        from fray.cluster.ray.job_api import JobApi  # noqa: PLC0415 - needs Ray, a second to import

        return JobApi(self._spec.address)

    def _prepare(self, request: JobRequest) -> _Launch:
        request = request.with_environment()
        call = request.resolve_entrypoint().callable_entrypoint
        payload = None
        if call is not None:
            limits = PayloadLimits(secrets=LARGEST)
            payload = encode_callable(call.callable, call.args, call.kwargs, limits=limits)
        directory = request.environment.workspace
        parent = find_parent(self._environ)
        uploads = Uploads(payload=None if call is None else describe_payload(payload))
        built = build_manifest(request, self._spec, parent=parent, uploads=uploads)
        job = mark_launch(without_secrets(built), secrets.token_hex(16))
        return _Launch(
            job,
            _judge(job, has_payload=True),
            parent,
            built.secret_variables,
            payload,
            self._archive(directory) if directory else None,
        )

    def _archive(self, directory: str) -> tuple[bytes, str] | None:
        root = find_workspace(directory, field="EnvironmentConfig.workspace")
        archive = self._archiver.archive(root, WorkspaceLimits(secrets=LARGEST))
        return None if archive is None else (archive.data, archive.sha256)

    def _submit(self, launch: _Launch, name: str, when_taken: WhenTaken) -> JobId:
        job_id, sent = "", False
        while not sent:  # another launch may take the name first: what it is now decides anew
            jobs = self._api.list()
            if when_taken != "rename" and (living := self._find_living(name, launch, when_taken, jobs)):
                if when_taken == "refuse":
                    raise JobExistsError(living)
                job_id = living
                break
            taken = {each.id for each in jobs}
            names = (build_object_name(name if number == 1 else f"{name}-{number}") for number in count(1))
            job_id = next(each for each in names if each not in taken)
            sent = self._send(launch, job_id)
        self._known.add(job_id)
        return JobId(job_id)

    def _send(self, launch: _Launch, job_id: str) -> bool:
        """Submit a job; return whether its name was free."""
        job = rename_job(launch.job, job_id)
        with tempfile.TemporaryDirectory(prefix="fray-") as folder:
            Bundle(Path(folder)).write(job, dict(launch.variables or {}), launch.payload, launch.workspace)
            arguments = build_submission(job, grace_seconds=launch.grace_seconds, bundle=folder)
            try:
                self._api.submit(arguments)
            except RayRefusedError:
                # Another launch may have taken the name since; else it is Ray's word on the job.
                there = next((each for each in self._api.list() if each.id == job_id), None)
                if there is None:
                    raise
                return there.metadata == build_metadata(job)
        return True

    def _find_living(
        self, name: str, launch: _Launch, when_taken: WhenTaken, jobs: Sequence[RayJob]
    ) -> str | None:
        for each in jobs:
            submitted = None if each.ended else read_submitted(each)
            if submitted is None or get_original_name(submitted) != name:
                continue
            job = self._view(each, jobs)
            if when_taken == "resume":
                if each.id not in self._known and is_resumable(job, name, launch.parent):
                    return each.id
            elif not is_finished(job.status):
                return each.id
        return None

    def _find(self, job_id: JobId) -> tuple[RayJob, list[RayJob]]:
        """Return the Ray job of a FrayJob, and all others beside; raises `JobNotFoundError`."""
        check_job_id(job_id)
        jobs = self._api.list()
        named = {each.id: each for each in jobs if read_submitted(each) is not None}
        if job_id not in named:
            raise JobNotFoundError.among(job_id, self.place, sorted(named))
        return named[job_id], jobs

    def _look(self, job_ids: Sequence[JobId]) -> list[FrayJob]:
        if not job_ids:
            return []
        first, jobs = self._find(job_ids[0])
        named = {each.id: each for each in jobs}
        seen = {first.id: self._view(first, jobs)}
        for job_id in job_ids[1:]:
            if job_id not in seen:
                found = named.get(check_job_id(job_id))
                if found is None or read_submitted(found) is None:
                    found, _ = self._find(job_id)
                seen[job_id] = self._view(found, jobs)
        return [seen[job_id] for job_id in job_ids]

    def _view(self, found: RayJob, jobs: Sequence[RayJob]) -> FrayJob:
        submitted = read_submitted(found)
        assert submitted is not None
        content = None
        if found.node is not None:
            content = self._api.read_file(found.node, f"{reports_folder(submitted)}/job.json")
        reported = FrayJob.from_manifest(json.loads(content)) if content else None
        withdrawn = any(read_withdrawn(each) == found.id for each in jobs)
        nodes = self._api.list_nodes() if found.status == "PENDING" else ()
        now = datetime.now(UTC)
        return derive_job(submitted, found, reported, withdrawn=withdrawn, now=now, nodes=nodes)

    def _read(
        self, job_id: JobId, choice: LogChoice, ranks: Collection[int], latest: int
    ) -> Iterator[LogLine]:
        """Yield lines of the log, those of the `latest` attempt where a `tail` names none."""
        only, tail, follow = choice.attempt, choice.tail, choice.follow
        attempt = only if tail is None else only or latest
        skipped = 0
        if tail is not None or not follow:
            printed = list(_decode(job_id, iter([self._api.read_log(job_id)])))
            chosen = [line for line in printed if line.rank in ranks and attempt in (None, line.attempt)]
            yield from chosen if tail is None else chosen[max(len(chosen) - tail, 0) :]
            skipped = len(printed)
        if not follow:
            return
        loop = LoopThread("fray-ray-logs")
        source = self._api.follow_log(job_id)
        try:
            for number, line in enumerate(_decode(job_id, iterate(source, loop.run))):
                if only is not None and line.attempt > only:
                    return
                if number >= skipped and line.rank in ranks and only in (None, line.attempt):
                    yield line
        finally:
            loop.run(_close(source))
            loop.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._spec.address,)

    def __repr__(self) -> str:
        return f"RayCluster({str(self._spec)!r})"


def _judge(job: FrayJob, *, has_payload: bool = False) -> float:
    """Refuse what Ray has no word for, and return the seconds that hosts have to end."""
    plan = build_attempt(job, attempt=1, settings=PLAN_SETTINGS)
    check_supported(job, plan, has_payload=has_payload, has_packages=True)
    build_resources(job.spec)
    for notice in build_notices(job, plan):
        logger.debug("%s on Ray: %s", job.metadata.name, notice)
    pods = build_local_pods(plan, LocalMachine(socket.gethostname(), uuid.uuid4()))
    return max(pod.grace_seconds for pod in pods)


async def _close(source: AsyncGenerator[str, None]) -> None:
    await source.aclose()


def _decode(job_id: JobId, pieces: Iterator[str]) -> Iterator[LogLine]:
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from filter(None, (decode_line(job_id, text) for text in whole))
    if (line := decode_line(job_id, rest)) is not None:
        yield line
