"""Tasks that die, or are killed, at a chosen moment of their life."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fray.job import get_job_context
from tests.behaviour.gates import Gate, append, lines

__all__ = [
    "Explosive",
    "die_always",
    "die_in_a_put_that_nobody_hears_of",
    "die_while_writing",
    "give_items",
    "kill_this_process",
    "meet",
]


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def meet(runs: Path, gate: Gate) -> str:
    """Say which process this is, and wait at the gate."""
    append(runs, str(os.getpid()))
    gate.pass_through()
    return "done"


def die_while_writing(runs: Path, size: int) -> bytes:
    """Die in the first run in the middle of writing the result to the store."""
    append(runs, str(os.getpid()))
    if len(lines(runs)) == 1:
        write = os.writev

        def write_some(file: int, parts: Any) -> int:
            write(file, [memoryview(parts[-1]).cast("B")[: size // 2]])
            kill_this_process()
            raise AssertionError("unreachable")

        os.writev = write_some  # type: ignore[assignment]
    return b"x" * size


def die_in_a_put_that_nobody_hears_of(runs: Path, size: int) -> int:
    """Die in the first run when a value has been put, just before the head would be told of it."""
    append(runs, str(os.getpid()))
    context: Any = get_job_context()
    if len(lines(runs)) == 1:
        context._engine.client.put = lambda *_: kill_this_process()
    return len(context.get(context.put(b"x" * size)))


def give_items(runs: Path, count: int, size: int, die_at: int = -1) -> Iterator[bytes]:
    """Give items that differ; die before the item `die_at`, in the first run."""
    append(runs, str(os.getpid()))
    for index in range(count):
        if index == die_at and len(lines(runs)) == 1:
            kill_this_process()
        yield bytes([index % 256]) * size


def die_always(folder: Path, key: int, poisoned: int) -> int:
    """Note the run; the task `poisoned` kills its worker each time."""
    append(folder / str(key), str(os.getpid()))
    if key == poisoned:
        kill_this_process()
    return key


class Explosive:
    """An actor whose process dies when it's asked to."""

    def ping(self) -> str:
        return "alive"

    def die(self) -> None:
        kill_this_process()

    def die_once(self, mark: Path) -> str:
        if not mark.exists():
            mark.touch()
            self.die()
        return "alive"
