"""Writing what hosts print: each host's own bytes, and the order in which all of them came.

`slice-0-host-1.log` holds what that process wrote; of a line that it writes again and again, as progress
bars do with carriage returns, the last state without them. `order` has one line for each run of whole
lines: time in nanoseconds, slice, host, bytes, lines. Together they give back the attempt's output as it
happened, without a second copy of it. No output is kept in memory. Reading is `logs`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from fray.cluster.local.store import state_errors

__all__ = ["ORDER_FILE", "AttemptOutput", "HostOutput", "host_log_name"]

ORDER_FILE = "order"
TAIL_BYTES = 8192


def host_log_name(slice_index: int, host: int) -> str:
    """Return the name of the file with one host's output."""
    return f"slice-{slice_index}-host-{host}.log"


class AttemptOutput:
    """The output of one attempt in a folder of its own, which is made here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with state_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._order = _open_to_append(folder / ORDER_FILE)

    def open_host(self, slice_index: int, host: int) -> HostOutput:
        """Return the output of one host.

        Raises:
            StateDirectoryError: the file can't be made.
        """
        return HostOutput(self, self._folder / host_log_name(slice_index, host), f"{slice_index} {host}")

    def note_order(self, place: str, size: int, lines: int) -> None:
        """Record that the next `size` bytes of a host, which are `lines` lines, came now."""
        record = f"{time.time_ns()} {place} {size} {lines}\n"
        _write_all(self._order, record.encode(), self._folder / ORDER_FILE)

    def close(self) -> None:
        """Close the folder's own file; hosts close theirs."""
        os.close(self._order)


class HostOutput:
    """The output of one host. Bytes are on disk when `write` returns."""

    def __init__(self, attempt: AttemptOutput, path: Path, place: str) -> None:
        self._attempt = attempt
        self._path = path
        self._place = place
        self._unfinished = 0  # bytes after the last newline: on disk, and not yet in the order
        self._returned = False  # they end with a carriage return: what comes next takes their place
        self._closed = False
        with state_errors(path):
            self._file = _open_to_append(path)

    def write(self, data: bytes) -> None:
        """Append what the process wrote, but for states of a line that later ones have taken the place of.

        Raises:
            StateDirectoryError: the disk is full, or the file is gone.
        """
        if self._returned or b"\r" in data:
            data = self._reduce(data)
        _write_all(self._file, data, self._path)
        whole = data.rfind(b"\n") + 1
        if whole:
            self._attempt.note_order(self._place, self._unfinished + whole, data.count(b"\n"))
            self._unfinished = 0
        self._unfinished += len(data) - whole

    def _reduce(self, data: bytes) -> bytes:
        """Return what of `data` stays; a line on disk that its beginning replaces is cut off there."""
        first, *others = data.split(b"\n")
        lines = [each.rstrip(b"\r").rpartition(b"\r") for each in (first, *others)]
        if lines[0][2] and (self._returned or lines[0][1]):
            with state_errors(self._path):
                # No reader has seen it: it isn't in the order yet.
                os.ftruncate(self._file, os.fstat(self._file).st_size - self._unfinished)
            self._unfinished = 0
        self._returned = data.endswith(b"\r")
        return b"\n".join(state for _, _, state in lines)

    def close(self) -> None:
        """End the output; a last line without newline counts as one. May be called twice."""
        if self._closed:
            return
        self._closed = True
        os.close(self._file)
        if self._unfinished:
            self._attempt.note_order(self._place, self._unfinished, 1)

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the last lines that hold anything, as text."""
        with state_errors(self._path), self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
        return tuple(line for line in text.split("\n") if line.strip())[-lines:]


def _open_to_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_all(file: int, data: bytes, path: Path) -> None:
    view = memoryview(data)
    with state_errors(path):
        while view:
            view = view[os.write(file, view) :]
