"""The jobs of a Kubernetes cluster, as the commands ask for them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from fray.cli.lines import format_log_line
from fray.cli.log_request import HostChoice, LogRequest, choose_hosts
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.cluster import KubernetesCluster
from fray.cluster.kubernetes.whole_jobs import KubernetesJobs
from fray.errors import JobNotRunningError
from fray.plan.gang import derive_gang
from fray.plan.status import is_finished
from fray.types import JobId, LogLine
from fray.wire.frayjob import FrayJob

__all__ = ["KubernetesBackend", "patience"]

PATIENCE_SECONDS = 5.0
"""After that a user is told what the command waits for."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class KubernetesBackend:
    """The FrayJobs of a namespace. `notes` is told where the cluster takes long to answer."""

    def __init__(self, spec: KubernetesSpec, *, environ: Mapping[str, str], notes: Stream) -> None:
        self._spec = spec
        self._notes = notes
        self.jobs = KubernetesJobs(KubernetesCluster(spec, environ=environ))

    @property
    def place(self) -> str:
        """The namespace and the API server."""
        return self.jobs.place

    def list_jobs(self) -> list[FrayJob]:
        """Return all jobs, sorted by name."""
        with patience(self._notes, self._spec):
            return self.jobs.list_jobs()

    def find_job(self, name: str) -> FrayJob:
        """Return a job; raises `JobNotFoundError`."""
        with patience(self._notes, self._spec):
            return self.jobs.find_job(name)

    def stop_job(self, name: str, *, wait: bool) -> FrayJob:
        """Ask a job to end, and return it; with `wait` once the operator has ended it."""
        job = self.find_job(name)
        if is_finished(job.status):
            raise JobNotRunningError(name, job.status.phase or "")
        with patience(self._notes, self._spec):
            self.jobs.cluster.terminate(JobId(name))
        return self.jobs.wait([name], None)[0] if wait else job

    def wait_finished(self, names: Sequence[str], timeout: float | None) -> list[FrayJob]:
        """Return jobs once all have finished; raises `JobNotFoundError` or `WaitTimeoutError`."""
        self.find_job(names[0])  # which tells where the cluster is silent; a wait may be so for days
        return self.jobs.wait(names, timeout)

    def show_logs(self, request: LogRequest, output: Stream) -> None:
        """Print what a job's hosts printed; raises `JobNotFoundError` or `LogsNotFoundError`."""
        job = self.find_job(request.name)
        choice = choose_hosts(request, job)
        if request.attempt is None and not request.follow and not job.status.attempts:
            return  # nothing was ever started, so nothing was printed
        latest = job.status.attempts[-1].number if job.status.attempts else 1
        told: _Told | None = None
        if request.tail is not None:
            printed = self._read(job, choice, attempt=request.attempt or latest, follow=False)
            told = _Told.of(printed) if job.status.attempts or request.attempt is not None else _Told()
            self._print(list(told.lines)[-request.tail :] if request.tail else [], request, output)
            if not request.follow:
                return
        attempt = request.attempt if request.follow else request.attempt or latest
        lines = self._read(job, choice, attempt=attempt, follow=request.follow)
        lines = (line for line in lines if line.attempt >= latest or request.attempt is not None)
        self._print(lines if told is None else told.skip(lines), request, output)

    def _read(
        self, job: FrayJob, choice: HostChoice, *, attempt: int | None, follow: bool
    ) -> Iterator[LogLine]:
        rank = choice.rank
        if rank is None and choice.slice_index is not None and choice.host is not None:
            rank = derive_gang(job.spec).rank(slice_index=choice.slice_index, host=choice.host)
        name = JobId(job.metadata.name)
        for line in self.jobs.cluster.logs(name, follow=follow, rank=rank, attempt=attempt):
            if choice.holds(rank=line.rank, slice_index=line.slice_index, host=line.host):
                yield line

    def _print(self, lines: Iterable[LogLine], request: LogRequest, output: Stream) -> None:
        for line in lines:
            output.write(
                format_log_line(
                    line,
                    terminal=output.is_terminal,
                    color=output.has_color,
                    timestamps=request.timestamps,
                )
            )


class _Told:
    """Lines that were read before the following began, which reads each log from its beginning again."""

    def __init__(self) -> None:
        self.lines: deque[LogLine] = deque(maxlen=100_000)
        self._counts: Counter[tuple[int, int]] = Counter()
        self._last: dict[tuple[int, int], datetime] = {}

    @classmethod
    def of(cls, lines: Iterable[LogLine]) -> _Told:
        told = cls()
        for line in lines:
            place = line.attempt, line.rank
            told.lines.append(line)
            told._counts[place] += 1
            told._last[place] = max(told._last.get(place, LONG_AGO), line.at or LONG_AGO)
        return told

    def skip(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines that are new: by number, and by time where a log lost its beginning meanwhile."""
        for line in lines:
            place = line.attempt, line.rank
            if self._counts[place] > 0 and (line.at or LONG_AGO) <= self._last[place]:
                self._counts[place] -= 1
                continue
            yield line


@contextmanager
def patience(notes: Stream, spec: KubernetesSpec, *, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Tell within a context that takes long what is waited for."""
    where = "the current context" if spec.context is None else f"context {spec.context}"
    text = f"no answer from the API server of {where} for {seconds:.0f} s; still trying\n"
    timer = threading.Timer(seconds, notes.write, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
