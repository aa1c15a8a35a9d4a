"""Memory of this process as Linux accounts for it. No engine."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

__all__ = ["await_settled_memory", "read_memory", "read_tree_memory"]

POLL_SECONDS = 0.25
STEADY_POLLS = 8
STEADY_BYTES = 1_000_000


def read_memory(field: str, *, pid: int | None = None) -> int:
    """Bytes of one field of a process's /proc/PID/status, by default of this one's.

    `VmRSS` for all, `VmHWM` for the most there ever was, `RssAnon` for what is shared with nobody.
    """
    for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == field:
            return int(amount.split()[0]) * 1024
    raise KeyError(field)


def read_tree_memory() -> int:
    """Bytes of this process and all that it has started; what they share is counted once."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # proc_pid_stat(5): the parent follows the state, which follows the name in parentheses.
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
    found = {os.getpid()}
    while len(found) != len(found := found | {pid for pid, parent in parents.items() if parent in found}):
        pass
    return sum(map(_proportional_bytes, found))


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def await_settled_memory() -> int:
    """Resident bytes once they have stopped growing: engines take tasks in behind the caller's back."""
    steady, last = 0, read_memory("VmRSS")
    while steady < STEADY_POLLS:
        time.sleep(POLL_SECONDS)
        now = read_memory("VmRSS")
        steady = steady + 1 if abs(now - last) < STEADY_BYTES else 0
        last = now
    return last
