"""Ends a worker whose tasks take more memory than they asked for, before the kernel ends a neighbour."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.worker.threads import IDLE_SECONDS, start_apart

__all__ = ["Exceeded", "MemoryLimits", "resident_bytes"]

LOOK_SECONDS = 0.1
"""Between two looks, while something that runs has a limit. A look takes about 50 microseconds."""
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Exceeded:
    """The tasks of one process have taken more memory than they asked for."""

    names: tuple[str, ...]
    """Of the tasks and actors with a limit."""
    allowed: int
    """Bytes that they asked for together."""
    taken: int
    """Bytes that the process has grown by since the first of them began."""

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.names))
        return (
            f"{names} took {self.taken / 1e6:,.0f} MB of memory, and asked for {self.allowed / 1e6:,.0f} MB"
        )


def resident_bytes(status: Path = _STATUS) -> int | None:
    """Return the private resident memory of this process; None where the system doesn't show it.

    `RssAnon` of proc(5), Linux 4.5 and later. Objects in shared memory aren't part of it: the store counts
    those.
    """
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


class MemoryLimits:
    """What the tasks and actors of this process may take, where their resources name `memory`.

    Parameters: `on_exceeded` is called once, in a thread of its own, and ends the process. `read` returns
    the memory of the process.
    """

    def __init__(
        self, on_exceeded: Callable[[Exceeded], None], read: Callable[[], int | None] = resident_bytes
    ) -> None:
        self._on_exceeded = on_exceeded
        self._read = read
        self._changed = threading.Condition()
        self._limits: dict[object, tuple[str, int]] = {}
        self._before = 0
        """Memory of the process when it had no limit last."""
        self._watching = False

    def add(self, key: object, name: str, shape: Shape) -> None:
        """Count the memory of a task or actor from now on; nothing if its `shape` names none."""
        allowed = int(dict(shape).get("memory", 0))
        if not allowed or (before := self._read()) is None:
            return
        with self._changed:
            if not self._limits:
                self._before = before
            self._limits[key] = (name, allowed)
            if not self._watching:
                with suppress(RuntimeError):  # no thread can be started now: the next task tries again
                    start_apart(self._watch, "fray-memory")
                    self._watching = True
            self._changed.notify()

    def remove(self, key: object) -> None:
        """Count a task's memory no longer. Has no effect without a limit."""
        if self._limits:
            with self._changed:
                self._limits.pop(key, None)

    def look(self) -> Exceeded | None:
        """Return what exceeds the limits at this moment; None if nothing does."""
        with self._changed:
            allowed = sum(each for _, each in self._limits.values())
            taken = (self._read() or 0) - self._before
            if not self._limits or taken <= allowed:
                return None
            return Exceeded(tuple(name for name, _ in self._limits.values()), allowed, taken)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._limits), IDLE_SECONDS):
                    self._watching = False  # under the lock, so that who adds a limit starts another thread
                    return
            if (exceeded := self.look()) is not None:
                self._on_exceeded(exceeded)
                return
            time.sleep(LOOK_SECONDS)
