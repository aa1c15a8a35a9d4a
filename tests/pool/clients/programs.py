"""What clients do that are processes of their own; the tests wait for what they print."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fray.job import JobContext

__all__ = ["Counter", "count_up", "leave_marks", "put_and_stay", "square", "write_mark"]


class Counter:
    """An actor that two processes share."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, number: int) -> int:
        """Return the sum so far."""
        self._count += number
        return self._count


def await_file(path: Path) -> None:
    """Return once there is such a file; fail after a minute."""
    give_up_at = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up_at, path
        time.sleep(0.01)


def write_mark(path: str) -> None:
    """Leave a file, a little later."""
    time.sleep(0.05)
    Path(path).touch()


def square(context: JobContext) -> None:
    """Print a task's result."""
    print(context.get(context.run(pow, 12, 2)), flush=True)


def count_up(context: JobContext) -> None:
    """Call the actor that somebody else has made."""
    print(context.get(context.get_actor("counter").add.remote(5)), flush=True)


def leave_marks(context: JobContext, folder: str, count: str) -> None:
    """Submit tasks, say so, and do nothing more for as long as it's let live."""
    refs = [context.run(write_mark, f"{folder}/{number}") for number in range(int(count))]
    context.get(refs[0])
    print("submitted", flush=True)
    sys.stdin.read()
    time.sleep(3600)


def put_and_stay(context: JobContext) -> None:
    """Put a large value, which lies on this process's own host."""
    ref = context.put(bytes(1_000_000))
    context.create_actor(Counter, name="counter")
    print("put", flush=True)
    time.sleep(3600)
    del ref
