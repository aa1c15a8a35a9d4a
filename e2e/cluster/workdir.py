"""Temporary directories whose leftovers are found and removed by the next run.

A directory is held by a lock on itself, which the kernel drops when its holder dies: no process ids that
could have been reused, no age that could be guessed wrong.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["hold_directory", "remove_leftovers"]


@contextmanager
def hold_directory(prefix: str) -> Iterator[Path]:
    """A new directory in the temporary folder, held until the block ends and then removed.

    Leftovers with the same prefix, whose holders died, are removed first.
    """
    remove_leftovers(prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        descriptor = _try_lock(path)
        # Between the two lines above another run may have taken it for a leftover: then a new one.
        if descriptor is not None and path.exists():
            break
        if descriptor is not None:
            os.close(descriptor)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def remove_leftovers(prefix: str) -> list[Path]:
    """Remove this user's directories with that prefix that nobody holds any more; returns them."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        descriptor = _try_lock(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
            removed.append(path)
    return removed


def _try_lock(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone by now, or another user's
        return None
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
