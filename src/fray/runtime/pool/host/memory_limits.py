"""The limits of memory of a nanny's workers, each with a control group where those can be had."""

from __future__ import annotations

import os
from contextlib import suppress

from fray.runtime.memory_groups import MemoryGroup, find_parent, own_group
from fray.runtime.pool.host.processes import descendants
from fray.runtime.pool.worker.memory_limit import MemoryLimit

__all__ = ["MemoryLimits"]


class MemoryLimits:
    """Makes the limits of a nanny's workers, each with a control group where those can be had.

    Parameters: `store_limit`, see `MemoryLimit`.
    """

    def __init__(self, store_limit: int) -> None:
        self._store_limit = store_limit
        self._own = own_group()
        self._parent: MemoryGroup | None = None
        self._searched = False
        self._kills = self._own.oom_kills() if self._own else 0
        self.began, self.wake = os.pipe()
        """Ends of a pipe: what a limit writes when it begins, and where."""
        for end in (self.began, self.wake):
            os.set_blocking(end, False)

    def new(self, name: str) -> MemoryLimit:
        """Make the limit of a worker that is to be forked; `name` is its own among the nanny's workers."""
        if not self._searched:
            self._searched = True
            self._parent = find_parent(self._own, descendants) if self._own else None
            if self._parent is not None:
                self._parent.sweep()  # of nannies that were killed
        group = None
        with suppress(OSError):
            group = self._parent.new(f"{os.getpid()}-{name}") if self._parent else None
        return MemoryLimit(self.wake, group, self._store_limit)

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
        """Remove what is left of the groups."""
        if self._parent is not None:
            self._parent.sweep()
