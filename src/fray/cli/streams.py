"""Standard output and standard error of the command line, written to directly.

Not through `sys.stdout`: a thread that is blocked in a write to a slow reader must not hold a lock that
the end of the program needs. Errors of the reader (it has gone, the disk is full) reach the caller.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping

__all__ = ["OutputStream", "open_missing_descriptors"]


class OutputStream:
    """One of the two output streams. It is also a text file as far as rich needs one."""

    def __init__(self, descriptor: int, *, environ: Mapping[str, str], encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self.encoding = encoding
        self.is_terminal = os.isatty(descriptor) and environ.get("TERM", "") not in ("", "dumb")
        # https://no-color.org: present and not empty
        self.has_color = self.is_terminal and not environ.get("NO_COLOR")

    def write(self, text: str) -> int:
        """Write all of a text; what the encoding can't express becomes a question mark.

        Raises:
            OSError: nobody reads any more (BrokenPipeError), or the disk is full.
        """
        self.write_bytes(text.encode(self.encoding, "replace"))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write all of the bytes, as they are; raises OSError as `write` does."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Somebody who shares the terminal or pipe has made it non-blocking.
                select.select((), (self._descriptor,), ())

    @property
    def width(self) -> int | None:
        """Characters of a line of its terminal; None for a pipe or a file, which takes all."""
        if not self.is_terminal:
            return None
        try:
            return os.get_terminal_size(self._descriptor).columns or None
        except OSError:
            return None

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self.is_terminal

    def fileno(self) -> int:
        """Return its file descriptor."""
        return self._descriptor


def open_missing_descriptors() -> None:
    """Open /dev/null in place of standard streams that the caller has closed.

    Else the next files to be opened would get their numbers, and receive what is printed.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
