"""`fray logs`: the output of a local job, merged as it happened, from any shell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fray.cli.lines import LineFormatter
from fray.cli.log_request import LogRequest, choose_hosts
from fray.cli.streams import Stream
from fray.cluster.local.jobs import observe_job
from fray.cluster.local.logs import AttemptLogReader, LogPiece, Place
from fray.cluster.local.store import StateDirectory
from fray.errors import LogsNotFoundError
from fray.plan.gang import derive_gang
from fray.plan.status import is_finished
from fray.wire.frayjob import FrayJob

__all__ = ["show_logs"]

POLL_SECONDS = 0.1


def show_logs(
    request: LogRequest, *, state: StateDirectory, output: Stream, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print what was asked for; with `follow` until the job, or the chosen attempt, has ended.

    Raises:
        JobNotFoundError: there is no such job.
        LogsNotFoundError: the job has no such attempt or host.
    """
    job = observe_job(state, request.name)
    wanted = _wanted_places(request, job)
    number = _choose_attempt(request, job, state)
    hosts = derive_gang(job.spec).hosts_per_slice
    while number is None:
        if not request.follow or is_finished(job.status):
            return  # nothing was ever started, so nothing was printed
        sleep(POLL_SECONDS)
        job = observe_job(state, request.name)
        number = job.status.attempt
    tail = request.tail
    while True:
        formatter = LineFormatter(
            hosts_per_slice=hosts,
            terminal=output.is_terminal,
            color=output.has_color,
            timestamps=request.timestamps,
        )
        reader = AttemptLogReader(state.job(request.name).attempt_logs(number), wanted=wanted)
        try:
            for piece in _follow_attempt(reader, request, number, tail, state, sleep):
                output.write(formatter.format(piece))
        finally:
            reader.close()
        latest = observe_job(state, request.name).status.attempt or 0
        if not request.follow or request.attempt is not None or latest <= number:
            return
        number, tail = number + 1, None


def _follow_attempt(
    reader: AttemptLogReader,
    request: LogRequest,
    number: int,
    tail: int | None,
    state: StateDirectory,
    sleep: Callable[[float], None],
) -> Iterator[LogPiece]:
    if tail is not None:
        yield from reader.skip_to_tail(tail)
    while True:
        # Looked at before reading: what was printed before the end is then read before leaving.
        job = observe_job(state, request.name)
        ended = not request.follow or is_finished(job.status) or (job.status.attempt or 0) != number
        yield from reader.read()
        if ended:
            if tail is None and is_finished(job.status):
                yield from reader.read_rest()
            return
        sleep(POLL_SECONDS)


def _choose_attempt(request: LogRequest, job: FrayJob, state: StateDirectory) -> int | None:
    """Return the attempt to show: the one asked for, or the latest; None where none was started."""
    if request.attempt is None:
        return job.status.attempt
    folder = state.job(request.name)
    kept = [n for n in range(1, (job.status.attempt or 0) + 1) if folder.attempt_logs(n).exists()]
    if request.attempt not in kept:
        raise LogsNotFoundError(request.name, f"logs of attempt {request.attempt}", tuple(map(str, kept)))
    return request.attempt


def _wanted_places(request: LogRequest, job: FrayJob) -> Callable[[Place], bool]:
    gang, choice = derive_gang(job.spec), choose_hosts(request, job)

    def wanted(place: Place) -> bool:
        slice_index, host = place
        rank = gang.rank(slice_index=slice_index, host=host)
        return choice.holds(rank=rank, slice_index=slice_index, host=host)

    return wanted
