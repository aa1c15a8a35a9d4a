"""A small disk for objects that memory has no room for, which can be filled for a while."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["SmallDisk", "small_disk"]

SIZE = 256 * 1024**2
"""Far more than a campaign has there at any time."""
PIECE = 64 * 1024
MOUNT_SECONDS = 60.0


class SmallDisk:
    """The disk at `path`. `fill` and `free` are for one thread, `was_full_since` for any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"
        self._ends: list[float] = []
        self._full = False

    def fill(self) -> None:
        """Leave no room on it; what others remove makes some."""
        self._full = True
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Take away what filled it."""
        self._ballast.unlink(missing_ok=True)
        # In this order: those who ask in between are told that it is full, or that it was so until now.
        self._ends.append(time.monotonic())
        self._full = False

    def was_full_since(self, began: float) -> bool:
        """Whether it has been full at any time since `began`, on the monotonic clock."""
        return self._full or any(end >= began for end in self._ends)


@contextlib.contextmanager
def small_disk(path: Path, *, size: int = SIZE) -> Iterator[SmallDisk | None]:
    """Mount a disk of `size` bytes at `path` for a `with` block; None where this process may not."""
    if os.geteuid() != 0 or sys.platform != "linux":
        yield None
        return
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path]
    subprocess.run(mount, check=True, timeout=MOUNT_SECONDS)
    try:
        yield SmallDisk(path)
    finally:
        gc.collect()  # what was read from it may still be mapped
        subprocess.run(["umount", path], check=True, timeout=MOUNT_SECONDS)
