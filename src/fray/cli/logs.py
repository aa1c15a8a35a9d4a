"""`fray logs`: what a job's hosts printed, from any shell, here and on clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fray.cli.lines import print_log
from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.errors import LogsNotFoundError
from fray.plan.gang import derive_gang
from fray.types import JobId, LogLine
from fray.wire.frayjob import FrayJob

__all__ = ["LogRequest", "choose_ranks", "show_logs"]

NUMBERS_SHOWN = 16


@dataclass(frozen=True)
class LogRequest:
    """What `fray logs` was asked for. `rank`, or `slice_index` and `host`, choose hosts; all when unset."""

    name: str
    follow: bool = False
    attempt: int | None = None
    rank: int | None = None
    slice_index: int | None = None
    host: int | None = None
    tail: int | None = None
    timestamps: bool = False


def show_logs(request: LogRequest, job: FrayJob, cluster: Cluster, output: OutputStream) -> None:
    """Print what was asked for of a job; with `follow` until the job, or the chosen attempt, has ended.

    Without an attempt the latest is meant, and with `follow` those after it.

    Raises:
        LogsNotFoundError: the job has no such attempt or host.
    """
    print_log(_read(request, job, cluster), output, timestamps=request.timestamps)


def _read(request: LogRequest, job: FrayJob, cluster: Cluster) -> Iterator[LogLine]:
    ranks, attempts = choose_ranks(request, job), job.status.attempts
    if request.attempt is None and not request.follow and not attempts:
        return  # nothing was ever started, so nothing was printed
    latest = attempts[-1].number if attempts else 1
    attempt = request.attempt if request.follow else request.attempt or latest
    lines = cluster.logs(
        JobId(request.name),
        follow=request.follow,
        rank=ranks,
        attempt=attempt,
        tail=request.tail,
        unfinished=True,
    )
    for line in lines:
        if line.attempt >= latest or request.attempt is not None:
            yield line


def choose_ranks(request: LogRequest, job: FrayJob) -> list[int] | None:
    """Return the ranks that a request means, None for all; raises `LogsNotFoundError`."""
    gang = derive_gang(job.spec)
    limits = (
        ("rank", request.rank, gang.hosts),
        ("slice", request.slice_index, gang.slices),
        ("host", request.host, gang.hosts_per_slice),
    )
    for what, asked, count in limits:
        if asked is not None and not 0 <= asked < count:
            known = tuple(map(str, range(min(count, NUMBERS_SHOWN))))
            raise LogsNotFoundError(request.name, f"{what} {asked}", known)
    if request.rank is None and request.slice_index is None and request.host is None:
        return None
    places = [(rank, *divmod(rank, gang.hosts_per_slice)) for rank in range(gang.hosts)]
    return [
        rank
        for rank, slice_index, host in places
        if request.rank in (None, rank)
        and request.slice_index in (None, slice_index)
        and request.host in (None, host)
    ]
