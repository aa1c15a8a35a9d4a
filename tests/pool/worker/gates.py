"""Gates that tasks wait at until the test opens them: named pipes, so that nobody polls or sleeps."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """`arrive` in a task waits for `open` in the test, and the other way round."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        os.mkfifo(self.path)

    def open(self) -> None:
        """Let one task through; returns when it has come."""
        self.path.write_bytes(b"")


def arrive(path: Path) -> str:
    path.read_bytes()
    return path.name
