"""The limits of memory of a nanny's workers, each with a control group where those can be had."""

from __future__ import annotations

import os
from contextlib import suppress

from fray.runtime.control_groups import MemoryGroup, find_parent, own_group
from fray.runtime.pool.host.processes import descendants
from fray.runtime.pool.worker.memory_limit import MemoryLimit

__all__ = ["MemoryLimits"]


class MemoryLimits:
    """Makes the limits of a nanny's workers.

    Parameters: `shared`, bytes that the host's objects may take in memory.
    """

    def __init__(self, shared: float) -> None:
        self._shared = shared
        self._own = own_group()
        self._parent: MemoryGroup | None = None
        self._searched = False
        self._ended: list[MemoryGroup] = []
        """Those of ended workers, in which processes were left."""
        self._kills = self._own.oom_kills() if self._own else 0
        self.began, self.wake = os.pipe()
        """Ends of a pipe: what a limit writes when it begins, and where."""
        for end in (self.began, self.wake):
            os.set_blocking(end, False)

    def new(self, number: int) -> MemoryLimit:
        """Make the limit of a worker that is to be forked; its `number` is its own among the nanny's."""
        if not self._searched:
            self._searched = True
            self._parent = find_parent(self._own, descendants) if self._own else None
            self._own = own_group()  # it may have moved
            if self._parent is not None:
                self._parent.sweep()
        if self._own is None or self._parent is None:
            return MemoryLimit(self.wake)
        try:
            group = self._parent.new(number)
        except OSError:
            return MemoryLimit(self.wake)
        return MemoryLimit(self.wake, group, self._own, self._shared)

    def discard(self, limit: MemoryLimit) -> str:
        """Remove what the limit of an ended worker took; return why the kernel has ended it, if it did."""
        cause = limit.close()
        if limit.group is not None:
            self._ended.append(limit.group)
        self._ended = [group for group in self._ended if not group.remove()]
        return cause

    def clear(self) -> bool:
        """Return whether limits have begun since the last call."""
        with suppress(BlockingIOError):
            return bool(os.read(self.began, 1 << 16))
        return False

    def count_kills(self) -> int:
        """Return how many processes the kernel has ended for want of memory since the last call."""
        before, self._kills = self._kills, self._own.oom_kills() if self._own else 0
        return self._kills - before

    def close(self) -> None:
        """Remove what is left of the groups of ended workers."""
        for group in self._ended:
            group.remove()
