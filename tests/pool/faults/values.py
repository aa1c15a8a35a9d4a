"""Values, exceptions and functions that are hard to bring from one process to another."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fray.job import get_job_context
from tests.behaviour.gates import append

__all__ = [
    "LockedError",
    "allocate",
    "give",
    "limit_memory",
    "make_bytes",
    "make_lock",
    "nest",
    "put_without_end",
    "raise_locked",
    "raise_text",
    "total_asked",
    "total_given",
]


class LockedError(Exception):
    """Doesn't leave its process."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays here")


def make_lock() -> Any:
    return {"part": [threading.Lock()]}


def raise_locked() -> None:
    raise LockedError("no key")


def raise_text(size: int) -> None:
    raise ValueError("x" * size + "end")


def make_bytes(size: int) -> bytes:
    return (size % 251).to_bytes() * size


def allocate(size: int) -> int:
    return len(bytearray(size))


def give(made: Path, count: int, size: int) -> Iterator[bytes]:
    for index in range(count):
        append(made, str(index))
        yield bytes([index % 256]) * size


def limit_memory(more: int) -> None:
    """Let this process have only so many bytes more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def nest(levels: int) -> int:
    """Return `levels`, found by as many tasks that wait for each other."""
    context = get_job_context()
    return 1 + context.get(context.run(nest, levels - 1)) if levels > 1 else 1


def put_without_end(path: Path) -> None:
    """Make references of every kind until somebody interrupts it."""
    context = get_job_context()
    path.touch()
    while True:
        large = context.put(b"x" * 100_000)
        small = context.put(1)
        assert context.get(context.run(len, [large, small])) == 2
        context.wait([large, small], num_returns=2)


def total_given(*parts: bytes) -> int:
    return sum(map(len, parts))


def total_asked(parts: list[Any]) -> int:
    return sum(map(len, get_job_context().get(parts)))
