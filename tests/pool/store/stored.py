"""What tests put into a store, and what they find in its directories."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fray.runtime.pool.objects import files as files_module
from fray.runtime.pool.objects import store as store_module
from fray.runtime.pool.objects.files import HELD
from fray.runtime.pool.objects.flat_format import Encoded
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import encode

fork = multiprocessing.get_context("fork")


def value(size: int) -> Encoded:
    """A value whose file has exactly `size` bytes."""
    return encode(b"\x07" * (size - encode(b"\x07" * size).size + size))


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix != HELD} - {"usage"}


def real_memory(store: HostStore) -> int:
    found = [path.stat() for path in store.directory.iterdir() if path.name != "usage"]
    return sum({status.st_ino: status.st_size for status in found}.values())


def in_three_processes(work: Callable[[int], None]) -> None:
    """Run `work` in three processes at a time, each with the first of numbers of its own; none may fail."""
    workers = [fork.Process(target=work, args=(10_000 * index,)) for index in range(1, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


def killed_at(store: HostStore, work: Callable[[HostStore], object], step: int) -> bool:
    """Run `work` in another process that is killed before its `step`-th line of the store; True if it was."""

    def run() -> None:
        left = step
        # Its own: a thread of the parent may hold a lock of this one while the process is forked.
        mine = HostStore(store.directory, store.spill_directory, store.limit)

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal left
            if frame.f_code.co_filename not in {store_module.__file__, files_module.__file__}:  # type: ignore[attr-defined]
                return None
            if event == "line":
                left -= 1
                if left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        work(mine)
        sys.settrace(None)
        os._exit(0)

    child = fork.Process(target=run)
    child.start()
    child.join()
    assert child.exitcode in {0, -signal.SIGKILL}
    store.discard_dead_parts()
    return child.exitcode != 0
