"""Reading what hosts printed, in the order in which it came, as often as there is more.

The format is `output`'s. A reader holds one piece of output at a time, whatever the size of the files,
and may read while the job still writes. How lines look on a screen is the command line's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from fray.cluster.local.output import ORDER_FILE, host_log_name
from fray.cluster.local.store import state_errors

__all__ = ["AttemptLogReader", "LogPiece", "Place"]

PIECE_BYTES = 256 * 1024
STATE_BYTES = 4096
"""The longest state of a line that is written over."""

Place = tuple[int, int]
"""Slice and host."""


@dataclass(frozen=True)
class LogPiece:
    """A piece of one host's output: whole lines, or a part of a very long one.

    `ends` is False where the rest of the same lines follows in the next piece.
    """

    place: Place
    at: datetime
    data: bytes = field(repr=False)
    ends: bool


@dataclass(frozen=True)
class _Record:
    at: datetime
    place: Place
    size: int
    lines: int


class AttemptLogReader:
    """Reads the output of one attempt from its folder. `wanted` chooses hosts; all when None."""

    def __init__(self, folder: Path, *, wanted: Callable[[Place], bool] | None = None) -> None:
        self._folder = folder
        self._wanted = wanted or (lambda _: True)
        self._files = ExitStack()
        self._order: BinaryIO | None = None
        self._unread = b""
        self._hosts: dict[Place, BinaryIO] = {}
        self._read_bytes: dict[Place, int] = {}
        self._tails: dict[Place, tuple[int, bytes]] = {}
        """Where the unfinished lines began at the last `read_states`, and what they were."""

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def skip_to_tail(self, lines: int) -> Iterator[LogPiece]:
        """Yield the last `lines` lines of what is there now; the next `read` goes on after them.

        Raises:
            StateDirectoryError: the files can't be read.
        """
        kept: deque[_Record] = deque()
        total = 0
        for record in self._records():
            if not self._wanted(record.place):
                self._skip(record)
                continue
            kept.append(record)
            total += record.lines
            while kept and total - kept[0].lines >= lines:
                total -= kept[0].lines
                self._skip(kept.popleft())
        surplus = total - lines
        for record in kept:
            for piece in self._pieces(record):
                if surplus <= 0:
                    yield piece
                    continue
                # Only the first record kept can hold lines that are too many.
                found = piece.data.count(b"\n")
                if found >= surplus:
                    rest = piece.data.split(b"\n", surplus)[surplus]
                    if rest or not piece.ends:
                        yield LogPiece(piece.place, piece.at, rest, piece.ends)
                surplus -= found

    def read(self) -> Iterator[LogPiece]:
        """Yield what has come since the last call.

        Raises:
            StateDirectoryError: the files can't be read.
        """
        for record in self._records():
            if self._wanted(record.place):
                yield from self._pieces(record)
            else:
                self._skip(record)

    def read_rest(self) -> Iterator[LogPiece]:
        """Yield what hosts printed without its place in the order: only a killed runner leaves that."""
        for record in self._rests():
            yield from self._pieces(record)

    def read_states(self) -> Iterator[LogPiece]:
        """Yield what stands now in lines that hosts write over: unfinished ones that didn't just grow.

        It comes again with the line, as it stands then.
        """
        for record in self._rests():
            start = self._read_bytes.get(record.place, 0)
            file = self._host_file(record.place)
            with state_errors(self._folder):
                file.seek(start)
                data = file.read(STATE_BYTES)
            before_start, before = self._tails.get(record.place, (-1, b""))
            self._tails[record.place] = start, data
            # A line that ends at this moment is yielded by the next `read`.
            if before_start == start and data and b"\n" not in data and not data.startswith(before):
                yield LogPiece(record.place, record.at, data, ends=False)

    def _rests(self) -> Iterator[_Record]:
        """Yield a record of what each host has printed beyond what was read."""
        with state_errors(self._folder):
            names = {entry.name for entry in self._folder.glob("slice-*-host-*.log")}
        places = [(int(slice_index), int(host)) for _, slice_index, _, host in map(_split_name, names)]
        for place in sorted(filter(self._wanted, places)):
            with state_errors(self._folder):
                status = (self._folder / host_log_name(*place)).stat()
            size = status.st_size - self._read_bytes.get(place, 0)
            if size > 0:
                yield _Record(datetime.fromtimestamp(status.st_mtime, UTC), place, size, 0)

    def _records(self) -> Iterator[_Record]:
        with state_errors(self._folder):
            if self._order is None:
                try:
                    self._order = self._files.enter_context((self._folder / ORDER_FILE).open("rb"))
                except FileNotFoundError:
                    return
            while part := self._order.read(65536):
                # The last line may still be on its way to the file.
                *lines, self._unread = (self._unread + part).split(b"\n")
                for line in lines:
                    time, slice_index, host, size, count = (int(number) for number in line.split())
                    at = datetime.fromtimestamp(time / 1e9, UTC)
                    yield _Record(at, (slice_index, host), size, count)

    def _skip(self, record: _Record) -> None:
        self._read_bytes[record.place] = self._read_bytes.get(record.place, 0) + record.size

    def _pieces(self, record: _Record) -> Iterator[LogPiece]:
        file = self._host_file(record.place)
        start = self._read_bytes.get(record.place, 0)
        left = record.size
        self._skip(record)
        with state_errors(self._folder):
            file.seek(start)
            while left:
                data = file.read(min(left, PIECE_BYTES))
                if not data:
                    return  # somebody has cut the file
                left -= len(data)
                yield LogPiece(record.place, record.at, data, ends=not left)

    def _host_file(self, place: Place) -> BinaryIO:
        if place not in self._hosts:
            with state_errors(self._folder):
                path = self._folder / host_log_name(*place)
                # Unbuffered: what comes after the whole lines is written over (`output`).
                self._hosts[place] = self._files.enter_context(path.open("rb", buffering=0))
        return self._hosts[place]


def _split_name(name: str) -> list[str]:
    return Path(name).stem.split("-")
