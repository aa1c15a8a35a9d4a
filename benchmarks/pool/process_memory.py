"""Memory of this process as Linux accounts for it. No engine."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["await_settled_memory", "read_memory"]

POLL_SECONDS = 0.25
STEADY_POLLS = 8
STEADY_BYTES = 1_000_000


def read_memory(field: str) -> int:
    """Bytes of one field of /proc/self/status: `VmRSS` for all, `RssAnon` for what is shared with nobody."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == field:
            return int(amount.split()[0]) * 1024
    raise KeyError(field)


def await_settled_memory() -> int:
    """Resident bytes once they have stopped growing: engines take tasks in behind the caller's back."""
    steady, last = 0, read_memory("VmRSS")
    while steady < STEADY_POLLS:
        time.sleep(POLL_SECONDS)
        now = read_memory("VmRSS")
        steady = steady + 1 if abs(now - last) < STEADY_BYTES else 0
        last = now
    return last
