"""What belongs to a pool outside of Python: processes, threads, files and sockets of it."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fray.job import JobContext
from fray.runtime.pool.host.processes import children

__all__ = [
    "await_end",
    "descendants",
    "kill",
    "nanny_of",
    "open_files",
    "pool_directories",
    "pool_threads",
    "workers_of",
]


def descendants(pid: int) -> list[int]:
    """Return the processes below one, the nearest first."""
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def kill(pids: Iterable[int]) -> int:
    """Kill processes, each of which may take others of them along; return how many it met."""
    met = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            met += 1
    return met


def nanny_of(driver: int) -> int:
    """Return the pid of the only pool's nanny."""
    (nanny,) = children(driver)
    return nanny


def workers_of(ctx: JobContext, count: int) -> list[int]:
    """Return the pids of the workers, once there are `count`: it runs a task in each."""
    found: set[int] = set()
    while len(found) < count:
        found |= set(ctx.get([ctx.run(os.getpid) for _ in range(20)]))
    return sorted(found)


def pool_directories(driver: int) -> set[Path]:
    """Return the directories that a driver's pools hold open: in shared memory and on disk."""
    files = {Path(path) for path in open_files(driver).values()}
    return {path for path in files if path.parent.name == f"fray-{os.geteuid()}" and path.is_dir()}


def pool_threads() -> set[str]:
    """Return the names of the threads that pools have made; that of futures is the process's own."""
    return {
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("fray") and thread.name != "fray-futures"
    }


def open_files(pid: int) -> dict[int, str]:
    """Return what each open descriptor of a process leads to."""
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(path.name)] = str(path.readlink())
        except FileNotFoundError:
            continue
    return found


def await_end(pids: Iterable[int]) -> None:
    """Return when none of these processes is left; they needn't be children of this one."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll()
        os.close(handle)
