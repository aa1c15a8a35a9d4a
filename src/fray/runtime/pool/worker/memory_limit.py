"""What a worker's process may take while a task or actor with `memory` runs there.

The worker says when that begins and ends, by memory that it shares with the nanny. The nanny looks, since the
worker's own code can't where a task holds the GIL.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fray.runtime.control_groups import MemoryGroup

__all__ = ["LOOK_SECONDS", "Exceeded", "MemoryLimit", "private_bytes"]

LOOK_SECONDS = 0.05
"""Between two looks, while something that runs has a limit. A look takes about 50 microseconds."""
SLACK = 64 << 20
"""Bytes that the kernel leaves a group beyond what the task asked for and the host's objects can take."""
_WORD = struct.Struct("=q")
_ALLOWED, _BEFORE, _APART, _KILLS = (slice(8 * at, 8 * at + 8) for at in range(4))


class Exceeded(NamedTuple):
    """A task or actor has taken more memory than it asked for."""

    allowed: int
    """Bytes that it asked for."""
    taken: int
    """Bytes that its process has grown by since it began."""

    def __str__(self) -> str:
        taken = math.ceil(self.taken / 1e6)
        return (
            f"it took {taken:,} MB of memory, and asked for {self.allowed / 1e6:,.4g} MB: let it ask for more"
        )


def private_bytes(pid: int) -> int | None:
    """Return the private memory of a process; None where the system doesn't show it.

    `RssAnon` and `VmSwap` of proc(5), Linux 4.5 and later: what the kernel has moved to a swap device is
    still taken. Objects in shared memory aren't part of either: the store counts those.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "VmSwap:"))]
    return sum(kilobytes) * 1024 if kilobytes else None


class MemoryLimit:
    """The limit of one worker's process, which runs one task or actor at a time.

    Made before the fork. `enter`, `begin` and `end` are for the worker, the others for the nanny.

    Parameters: `wake`, a descriptor to which a byte is written when a limit begins. `group` is for this
    worker alone, `home` the nanny's; None: there is none. Then the process's own resident memory counts, and
    that of its children doesn't. `shared`: bytes that the host's objects may take in memory; those that the
    worker writes are counted in its group.
    """

    def __init__(
        self,
        wake: int,
        group: MemoryGroup | None = None,
        home: MemoryGroup | None = None,
        shared: float = math.inf,
    ) -> None:
        self._wake = wake
        self.group = group
        self._home = home
        self._shared = shared
        self._words = mmap.mmap(-1, 4 * _WORD.size)

    def enter(self) -> None:
        """Put this process into its group, if there is one and it may."""
        with suppress(OSError):
            if self.group is not None:
                self.group.enter(os.getpid())
                self._set(_APART, 1)

    def begin(self, allowed: int) -> None:
        """Count the memory that is taken from now on."""
        if (group := self._entered) is not None:
            self._send_away(group)
            self._set(_KILLS, group.oom_kills())
            with suppress(OSError):
                if self._shared < math.inf:
                    # For when nobody can look. Here, so that no limit of the task before holds for this one.
                    group.allow(allowed + int(self._shared) + SLACK)
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

    def exceeded(self, pid: int) -> Exceeded | None:
        """Return what process `pid` has taken beyond its limit by now; None if it has not."""
        asked = allowed, before = self.allowed, self._get(_BEFORE)
        if not allowed or (now := self._taken(pid)) is None or now - before <= allowed:
            return None
        if asked != (self.allowed, self._get(_BEFORE)):
            return None  # another task has begun since
        return Exceeded(allowed, now - before)

    def kill(self) -> None:
        """End what the process has started, whatever session that is in; the process itself as well."""
        with suppress(OSError):
            if (group := self._entered) is not None:
                group.kill()

    def close(self) -> str:
        """Forget what runs; return why the kernel has ended a process of it, if it did."""
        group, allowed, kills = self.group, self.allowed, self._get(_KILLS)
        self._words.close()
        if group is None:
            return ""
        killed, full = group.oom_kills() > kills, group.was_full()
        if not killed:
            return ""
        if not full:
            return "the kernel ended it, since its container or machine had no more memory"
        return f"the kernel ended it: it took much more memory than the {allowed / 1e6:,.4g} MB it asked for"

    def _send_away(self, group: MemoryGroup) -> None:
        """Put what earlier tasks have left in the group where it isn't counted any more."""
        assert self._home is not None
        with suppress(OSError):
            for pid in {*group.processes()} - {os.getpid()}:
                with suppress(ProcessLookupError):  # it has ended
                    self._home.enter(pid)

    @property
    def _entered(self) -> MemoryGroup | None:
        return self.group if self._get(_APART) else None

    def _taken(self, pid: int) -> int | None:
        if (group := self._entered) is None:
            return private_bytes(pid)
        try:
            return group.private_bytes()
        except OSError:  # somebody else has removed it
            return None

    def _get(self, word: slice) -> int:
        return int(_WORD.unpack(self._words[word])[0])

    def _set(self, word: slice, value: int) -> None:
        self._words[word] = _WORD.pack(value)
