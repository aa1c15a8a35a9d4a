"""Ways for a test and its tasks to wait for each other, in threads and in processes, without polling."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["Gate", "Signal", "append", "lines"]


class Gate:
    """Tasks that `pass_through` it block until the test opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let all through, now and later. May be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def pass_through(self) -> None:
        file = os.open(self.path, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_file": None}


class Signal:
    """A task sends it; the test waits for it. Each waits for the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def send(self) -> None:
        self.path.write_bytes(b"!")

    def wait(self) -> None:
        assert self.path.read_bytes() == b"!"


def append(path: Path, line: str) -> None:
    """Add a line to a file that many write to."""
    with path.open("a") as file:
        file.write(f"{line}\n")


def lines(path: Path) -> list[str]:
    """Return what was appended so far."""
    return path.read_text().splitlines() if path.exists() else []
