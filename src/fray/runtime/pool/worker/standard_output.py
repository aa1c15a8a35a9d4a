"""What was printed and hasn't left this process, before it ends without Python's own end, or forks."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["flush_output"]


def flush_output() -> None:
    """Flush standard output and standard error, as far as there is anybody who takes it. Raises nothing."""
    for stream in (sys.stdout, sys.stderr):
        # None: it was closed when the process began. ValueError: code of the user has closed it since.
        # OSError: its reader has gone, or the disk is full, and what was printed is lost.
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
