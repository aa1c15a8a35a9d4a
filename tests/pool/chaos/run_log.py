"""Who ran what, told by the runs themselves: an append-only file that outlives any process that is killed."""

from __future__ import annotations

import functools
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Run", "RunLog", "counts", "note_run", "out_of_order"]

_RECORD = struct.Struct("<QQQQ")


class Run(NamedTuple):
    """One run of a task or call began. `key` is the task's; `actor` and `incarnation` are 0 for tasks."""

    key: int
    pid: int
    actor: int = 0
    incarnation: int = 0


@functools.cache
def _descriptor(path: str, pid: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def note_run(path: str, key: int, actor: int = 0, incarnation: int = 0) -> None:
    """Tell that a run begins, in one write, which is whole or isn't there."""
    pid = os.getpid()
    os.write(_descriptor(path, pid), _RECORD.pack(key, pid, actor, incarnation))


@dataclass(frozen=True)
class RunLog:
    """All runs so far, in the order in which they began."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunLog:
        """Make an empty log."""
        path.touch()
        return cls(path)

    def runs(self) -> list[Run]:
        """Return all runs, oldest first."""
        return [Run(*record) for record in _RECORD.iter_unpack(self.path.read_bytes())]


def counts(runs: Sequence[Run], *, without: frozenset[int] = frozenset()) -> Counter[int]:
    """Count the runs of each task; those of the processes `without` don't count."""
    return Counter(run.key for run in runs if run.pid not in without)


def out_of_order(runs: Sequence[Run]) -> list[str]:
    """Return, in words, each call that an actor's incarnation began after a later one of its caller."""
    last: defaultdict[tuple[int, int], int] = defaultdict(lambda: -1)
    wrong: list[str] = []
    for run in runs:
        if not run.actor:
            continue
        life = (run.actor, run.incarnation)
        if run.key <= last[life]:
            wrong.append(f"actor {run.actor}, pid {run.pid}: call {run.key} began after call {last[life]}")
        last[life] = max(last[life], run.key)
    return wrong
