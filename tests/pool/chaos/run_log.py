"""Who ran what, told by the runs themselves: an append-only file that outlives any process that is killed."""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Run",
    "RunLog",
    "add_to_tally",
    "counts",
    "lost_states",
    "note_run",
    "out_of_order",
    "wrong_tallies",
]

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


def add_to_tally(tally: int, key: int) -> int:
    """Return the tally of an actor after the call `key`: it tells which calls there were, and their order."""
    return zlib.crc32(key.to_bytes(8, "little"), tally)


def wrong_tallies(runs: Sequence[Run], answers: Mapping[int, tuple[int, int]]) -> list[str]:
    """Return, in words, each of the `answers` (call -> incarnation and tally) that no runs led to."""
    tallies: defaultdict[int, int] = defaultdict(int)
    led_to: dict[tuple[int, int], int] = {}
    for run in runs:
        if run.actor:
            tallies[run.incarnation] = add_to_tally(tallies[run.incarnation], run.key)
            led_to[run.key, run.incarnation] = tallies[run.incarnation]
    return [
        f"call {key} gave the tally {tally}, not {led_to.get((key, incarnation))}"
        for key, (incarnation, tally) in answers.items()
        if led_to.get((key, incarnation)) != tally
    ]


def lost_states(runs: Sequence[Run], killed: Set[int]) -> list[str]:
    """Return, in words, each incarnation of an actor that was followed by another without being `killed`."""
    lives: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for run in runs:
        if run.actor:
            lives[run.actor].setdefault(run.incarnation, run.pid)
    return [
        f"actor {actor} lost its state, though nobody killed process {pid}"
        for actor, incarnations in lives.items()
        for pid in list(incarnations.values())[:-1]
        if pid not in killed
    ]
