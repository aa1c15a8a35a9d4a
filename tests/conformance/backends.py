"""The backends that the suite knows. One is a cluster to launch jobs on, and a few facts about it.

A backend joins by one entry in `BACKENDS`. Tests say nothing about where jobs run; where promises differ, a
fact says so here, by the name of what is promised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fray.cluster import Cluster, Entrypoint, JobRequest, create_cluster

__all__ = ["BACKENDS", "Backend"]

BACK_OFF = 3600
"""Seconds: a job that waits for its next attempt is pending, for longer than any test."""


@dataclass(frozen=True)
class Backend:
    """A cluster under test.

    Attributes:
        cluster: The cluster.
        python: The command that runs Python where jobs run.
        own_processes: Whether a callable has a process of its own: variables, memory, an end by force.
        make_pending: Returns a request of this name for a job that stays pending until it is stopped.
        find_left: Returns what jobs have left running, as text for people.
    """

    cluster: Cluster
    python: str
    own_processes: bool
    make_pending: Callable[[str], JobRequest]
    find_left: Callable[[], list[str]]


def fails_and_waits(name: str) -> JobRequest:
    return JobRequest(name, Entrypoint.from_command(["sh", "-c", "exit 1"]), max_retries_failure=1)


def processes_of(state: Path) -> list[str]:
    """Return the processes that have this state directory in their environment."""
    mark = f"FRAY_STATE_DIR={state}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@contextmanager
def local(spec: str, folder: Path, *, own_processes: bool = True) -> Iterator[Backend]:
    state = folder / "state"
    before = {name: os.environ.get(name) for name in ("FRAY_STATE_DIR", "FRAY_BACKOFF_SECONDS")}
    os.environ |= {"FRAY_STATE_DIR": str(state), "FRAY_BACKOFF_SECONDS": str(BACK_OFF)}
    try:
        cluster = create_cluster(spec)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    with cluster:
        yield Backend(cluster, "python3", own_processes, fails_and_waits, lambda: processes_of(state))


BACKENDS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "local": lambda folder: local("local", folder),
    "threads": lambda folder: local("local?mode=thread", folder, own_processes=False),
}
