"""What hosts printed as lines, attempt after attempt, for as long as there may be more.

Pieces of bytes come from `logs`; when to look again is for the watch to say. A line that is still being
written is handed out once its newline is there, or its host has ended; before that only its states are, where
they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fray.cluster.arguments import LogChoice
from fray.cluster.local.jobs import JobWatch
from fray.cluster.local.logs import AttemptLogReader, LogPiece, Place
from fray.cluster.local.store import JobFolder
from fray.cluster.long_lines import STATE_SECONDS, split_long_line
from fray.plan.gang import Gang, derive_gang
from fray.types import JobId, LogLine
from fray.wire.frayjob import FrayJob

__all__ = ["LineReader"]

EVERYTHING = LogChoice()


@dataclass(frozen=True)
class LineReader:
    """Reads the lines of one job that are chosen: see `Cluster.logs`."""

    job_id: JobId
    folder: JobFolder
    choice: LogChoice = EVERYTHING

    def check(self, job: FrayJob) -> None:
        """Raise `LogsNotFoundError` where the job has no such rank, or no such attempt."""
        self.choice.find_ranks(job, self._kept(job))

    def read(self, watch: JobWatch) -> Iterator[LogLine]:
        """Yield the lines; with `follow` until the job, or the chosen attempt, has ended.

        Raises:
            JobNotFoundError: the job was just removed.
            StateDirectoryError: its files can't be read.
        """
        job, finished = watch.look()
        gang, follow, tail = derive_gang(job.spec), self.choice.follow, self.choice.tail
        if self.choice.attempt is not None:
            yield from self._read_attempt(self.choice.attempt, gang, watch, tail=tail)
            return
        while not job.status.attempt and follow and not finished:
            watch.pause()
            job, finished = watch.look()
        kept = self._kept(job)
        number = kept[0] if kept else 1
        if tail is not None:
            number = job.status.attempt or 1
        elif number > 1:
            text = f"the lines of attempts 1 to {number - 1} are no longer kept"
            yield LogLine(self.job_id, number, 0, 0, 0, text, gap=True)
        while number <= (job.status.attempt or 0):
            yield from self._read_attempt(number, gang, watch, tail=tail)
            number, tail = number + 1, None
            job, finished = watch.look()
            while number > (job.status.attempt or 0) and follow and not finished:
                watch.pause()
                job, finished = watch.look()

    def _kept(self, job: FrayJob) -> list[int]:
        numbers = range(1, (job.status.attempt or 0) + 1)
        return [number for number in numbers if self.folder.attempt_logs(number).exists()]

    def _read_attempt(
        self, number: int, gang: Gang, watch: JobWatch, *, tail: int | None
    ) -> Iterator[LogLine]:
        follow, unfinished = self.choice.follow, self.choice.unfinished
        lines = _Lines(self.job_id, number, gang)
        reader = AttemptLogReader(self.folder.attempt_logs(number), wanted=self._wanted(gang))
        looked_at = time.monotonic()
        try:
            if tail is not None:
                for piece in reader.skip_to_tail(tail):
                    yield from lines.take(piece)
                if not follow:
                    return
            while True:
                # Looked at before reading: what was printed before the end is then read before leaving.
                job, finished = watch.look()
                for piece in reader.read():
                    yield from lines.take(piece)
                if finished:
                    for piece in reader.read_rest():
                        yield from lines.take(piece)
                if finished or not follow or (job.status.attempt or 0) > number:
                    return
                if unfinished and time.monotonic() - looked_at >= STATE_SECONDS:
                    looked_at = time.monotonic()
                    yield from map(lines.build_state, reader.read_states())
                watch.pause(STATE_SECONDS if unfinished else None)
        finally:
            reader.close()

    def _wanted(self, gang: Gang) -> Callable[[Place], bool] | None:
        rank = self.choice.rank
        if rank is None:
            return None
        ranks = {rank} if isinstance(rank, int) else rank
        return lambda place: gang.rank(slice_index=place[0], host=place[1]) in ranks


class _Lines:
    """Puts pieces together to lines. All pieces of one host's lines come in a row."""

    def __init__(self, job_id: JobId, attempt: int, gang: Gang) -> None:
        self._job_id = job_id
        self._attempt = attempt
        self._gang = gang
        self._rest = b""

    def take(self, piece: LogPiece) -> Iterator[LogLine]:
        *whole, rest = piece.data.split(b"\n")
        for part in whole:
            yield from self._parts(piece, part)
        if piece.ends:
            if rest or self._rest:
                yield from self._parts(piece, rest)
        elif rest:
            *parts, self._rest = split_long_line(self._rest + rest)
            for data in parts:
                yield self._line(piece, data, goes_on=True)

    def build_state(self, piece: LogPiece) -> LogLine:
        """Return the line that a piece of `AttemptLogReader.read_states` is."""
        return replace(self._line(piece, piece.data), unfinished=True)

    def _parts(self, piece: LogPiece, part: bytes) -> Iterator[LogLine]:
        """Yield a line that ends with `part`, mostly as one."""
        *parts, last = split_long_line(self._rest + part)
        self._rest = b""
        for data in parts:
            yield self._line(piece, data, goes_on=True)
        yield self._line(piece, last)

    def _line(self, piece: LogPiece, data: bytes, *, goes_on: bool = False) -> LogLine:
        slice_index, host = piece.place
        rank = self._gang.rank(slice_index=slice_index, host=host)
        text = data.decode(errors="replace").removesuffix("\r")
        return LogLine(self._job_id, self._attempt, rank, slice_index, host, text, piece.at, goes_on=goes_on)
