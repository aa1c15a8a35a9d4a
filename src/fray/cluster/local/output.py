"""Writing what hosts print: each host's own bytes, and the order in which all of them came.

`slice-0-host-1.log` holds exactly what that process wrote. `order` has one line for each run of whole
lines: time in nanoseconds, slice, host, bytes, lines. Together they give back the attempt's output as it
happened, without a second copy of it. Nothing is kept in memory. Reading is `logs`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from fray.cluster.local.store import state_errors
from fray.cluster.long_lines import last_state

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
        self._closed = False
        with state_errors(path):
            self._file = _open_to_append(path)

    def write(self, data: bytes) -> None:
        """Append what the process wrote.

        Raises:
            StateDirectoryError: the disk is full, or the file is gone.
        """
        _write_all(self._file, data, self._path)
        whole = data.rfind(b"\n") + 1
        if whole:
            self._attempt.note_order(self._place, self._unfinished + whole, data.count(b"\n"))
            self._unfinished = 0
        self._unfinished += len(data) - whole

    def close(self) -> None:
        """End the output; a last line without newline counts as one. May be called twice."""
        if self._closed:
            return
        self._closed = True
        os.close(self._file)
        if self._unfinished:
            self._attempt.note_order(self._place, self._unfinished, 1)

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the last lines that hold anything, as text; of a progress bar, its last state."""
        with state_errors(self._path), self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
        states = map(last_state, text.split("\n"))
        return tuple(state for state in states if state.strip())[-lines:]


def _open_to_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_all(file: int, data: bytes, path: Path) -> None:
    view = memoryview(data)
    with state_errors(path):
        while view:
            view = view[os.write(file, view) :]
