"""What a command in a job's host reads and writes: the promise that its caller makes to a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["CommandStreams"]


class CommandStreams(Protocol):
    """Standard streams of a command that runs elsewhere. Methods are called from several threads."""

    @property
    def is_terminal(self) -> bool:
        """Whether the command gets a terminal, which joins its two outputs."""
        ...

    def read(self) -> bytes:
        """Return the next piece of standard input, once there is one; empty at its end."""
        ...

    def write(self, data: bytes) -> None:
        """Take what it printed; raises OSError where nobody reads it."""
        ...

    def write_error(self, data: bytes) -> None:
        """Take what it printed to standard error; raises OSError where nobody reads it."""
        ...

    def watch_size(self, notify: Callable[[int, int], object]) -> None:
        """Call `notify` with columns and lines of the terminal, now and after each change."""
        ...
