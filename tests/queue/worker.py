"""A process that pushes to or takes from a queue until it is killed; its log is one for all processes.

Run as `python -m tests.queue.worker push|take QUEUE LOG FIRST STEP LAST`: QUEUE is a pickled queue. Each
line is one write to a file opened for appending, so the lines stand in the order of the events.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from fray.errors import LeaseLostError
from fray.queue import Queue

# Long enough for a worker that isn't killed to keep its lease, short enough to see many of them expire.
LEASE_SECONDS = 1.0


class Log:
    """One line for each event."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, event: str, item: int, begun: int = 0) -> None:
        os.write(self._file, f"{event} {item} {begun}\n".encode())

    def now(self) -> int:
        """How long the log is: what stands before that happened before."""
        return os.fstat(self._file).st_size


def push(queue: Queue[int], log: Log, items: range) -> None:
    for item in items:
        log.note("pushing", item)
        queue.push(item)
        log.note("pushed", item)


def take(queue: Queue[int], log: Log) -> None:
    """Take items for ever: the program that started this process ends it."""
    while True:
        begun = log.now()
        lease = queue.pop(LEASE_SECONDS)
        if lease is None:
            continue
        log.note("popped", lease.item, begun)
        try:
            if lease.item % 7 == 3:
                queue.renew(lease, LEASE_SECONDS)
            log.note("ending", lease.item)
            queue.done(lease)
        except LeaseLostError:
            log.note("lost", lease.item)
        else:
            log.note("done", lease.item)


def main() -> None:
    role, queue_path, log_path, *numbers = sys.argv[1:]
    queue: Queue[int] = pickle.loads(Path(queue_path).read_bytes())
    log = Log(Path(log_path))
    if role == "push":
        push(queue, log, range(*(int(number) for number in numbers)))
    else:
        take(queue, log)


if __name__ == "__main__":
    main()
