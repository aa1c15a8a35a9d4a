"""What a worker's process may take while a task or actor with `memory` runs there.

The worker says when that begins and ends, by memory that it shares with the nanny. The nanny looks, since the
worker's own code can't where a task holds the GIL.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fray.runtime.memory_groups import MemoryGroup

__all__ = ["LOOK_SECONDS", "Exceeded", "MemoryLimit", "resident_bytes"]

LOOK_SECONDS = 0.05
"""Between two looks, while something that runs has a limit. A look takes about 50 microseconds."""
SLACK = 64 << 20
"""Bytes that the kernel leaves a group beyond what the task asked for and the store can hold."""
_WORD = struct.Struct("=q")
_ALLOWED, _BEFORE, _APART = (
    slice(start, start + _WORD.size) for start in range(0, 3 * _WORD.size, _WORD.size)
)


class Exceeded(NamedTuple):
    """A task or actor has taken more memory than it asked for."""

    allowed: int
    """Bytes that it asked for."""
    taken: int
    """Bytes that its process has grown by since it began."""

    def __str__(self) -> str:
        return f"it took {self.taken / 1e6:,.0f} MB of memory, and asked for {self.allowed / 1e6:,.0f} MB"


def resident_bytes(pid: int) -> int | None:
    """Return the private resident memory of a process; None where the system doesn't show it.

    `RssAnon` of proc(5), Linux 4.5 and later. Objects in shared memory aren't part of it: the store counts
    those.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


class MemoryLimit:
    """The limit of one worker's process, which runs one task or actor at a time.

    Made before the fork. `enter`, `begin` and `end` are for the worker, the others for the nanny.

    Parameters: `wake`, a descriptor to which a byte is written when a limit begins. `group` is for this
    worker alone; None: there is none. Then the process's own resident memory counts, and that of its children
    doesn't. `store_limit`: bytes that the host's objects may take in shared memory; those that the worker
    writes are counted in its group.
    """

    def __init__(self, wake: int, group: MemoryGroup | None, store_limit: int) -> None:
        self._wake = wake
        self._group = group
        self._store_limit = store_limit
        self._shared = mmap.mmap(-1, 3 * _WORD.size)

    def enter(self) -> None:
        """Put this process into its group, if there is one and it may."""
        with suppress(OSError):
            if self._group is not None:
                self._group.enter(os.getpid())
                self._set(_APART, 1)

    def begin(self, allowed: int) -> None:
        """Count the memory that is taken from now on."""
        before = self._taken(os.getpid())
        if before is not None:
            self._set(_BEFORE, before)
            self._set(_ALLOWED, allowed)  # last: who reads it has the right `before`
            with suppress(BlockingIOError):  # there are bytes that the nanny has yet to see
                os.write(self._wake, b"m")

    def end(self) -> None:
        """Count no more."""
        self._set(_ALLOWED, 0)

    @property
    def allowed(self) -> int:
        """Bytes that what runs now may take; 0: as many as it likes."""
        return self._get(_ALLOWED)

    def hold(self) -> None:
        """Let the kernel end the process where it takes much more than is allowed before anybody looks."""
        if self._get(_APART) and self._group is not None and self.allowed:
            with suppress(OSError):
                self._group.limit(self.allowed + self._get(_BEFORE) + self._store_limit + SLACK)

    def exceeded(self, pid: int) -> Exceeded | None:
        """Return what process `pid` has taken beyond its limit by now; None if it has not."""
        allowed = self.allowed
        if not allowed or (now := self._taken(pid)) is None:
            return None
        taken = now - self._get(_BEFORE)
        return Exceeded(allowed, taken) if taken > allowed else None

    def kill(self) -> None:
        """End what the process has started, whatever session that is in; the process itself as well."""
        with suppress(OSError):
            if self._get(_APART) and self._group is not None:
                self._group.kill()

    def close(self) -> str:
        """Remove what this took of the system; return why the kernel ended a process, if it did."""
        allowed = self.allowed
        self._shared.close()
        if self._group is None:
            return ""
        killed = self._group.oom_kills() > 0
        self._group.remove()
        asked = f"; what ran there asked for {allowed / 1e6:,.0f} MB" if allowed else ""
        return f"the kernel ended it for want of memory{asked}" if killed else ""

    def _taken(self, pid: int) -> int | None:
        if not self._get(_APART) or self._group is None:
            return resident_bytes(pid)
        try:
            return self._group.private_bytes()
        except OSError:  # somebody else has removed it
            return None

    def _get(self, word: slice) -> int:
        return int(_WORD.unpack(self._shared[word])[0])

    def _set(self, word: slice, value: int) -> None:
        self._shared[word] = _WORD.pack(value)
