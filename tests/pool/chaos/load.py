"""The mixed load of the chaos: what tasks do in workers, and what must come of it, as pure functions.

Every value follows from a number, so that its reader can say whether it's right. `log` is the path of
the run log, `key` the task's number in it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fray.job import ObjectRef, TaskOptions, get_job_context
from tests.pool.chaos.run_log import add_to_tally, note_run

__all__ = [
    "Adder",
    "Tally",
    "check",
    "check_inside",
    "die",
    "fail",
    "generate",
    "hold_the_gil",
    "linger",
    "make_large",
    "mixed",
    "no_op",
    "noise",
    "put_inside",
    "reading",
    "sizes",
    "sleep_in_c",
    "split",
    "split_sum",
    "work",
]

BLOCK = 4096


def noise(seed: int, size: int) -> bytes:
    """Return `size` bytes, different ones for each seed all along, made fast."""
    block = (zlib.crc32(seed.to_bytes(8, "little")).to_bytes(4, "little") + seed.to_bytes(8, "little")) * 342
    return (block[:BLOCK] * (size // BLOCK + 1))[:size]


def mixed(seed: int, rounds: int = 400) -> int:
    """Return a number that takes a while to find."""
    value = seed
    for _ in range(rounds):
        value = zlib.crc32(value.to_bytes(8, "little"), seed & 0xFFFF) ^ (value >> 3)
    return value


def sizes(seed: int, count: int) -> list[int]:
    """Return the sizes of a generator's items, in bytes: tiny, inline and stored ones."""
    return [(16, 3_000, 90_000, 200_000)[mixed(seed + index, 3) % 4] for index in range(count)]


# --- tasks -------------------------------------------------------------------------------------------------


def no_op(log: str, key: int) -> int:
    note_run(log, key)
    return key


def work(log: str, key: int) -> int:
    note_run(log, key)
    return mixed(key)


def make_large(log: str, key: int, size: int) -> bytes:
    note_run(log, key)
    return noise(key, size)


def check(log: str, key: int, value: bytes) -> int:
    note_run(log, key)
    return zlib.crc32(value)


def check_inside(log: str, key: int, boxed: list[ObjectRef]) -> int:
    """Get a value by a ref that came inside a structure."""
    note_run(log, key)
    return zlib.crc32(get_job_context().get(boxed[0]))


def put_inside(log: str, key: int, size: int) -> list[ObjectRef]:
    """Return a ref of a value that this process has put: it must outlive the process."""
    note_run(log, key)
    return [get_job_context().put(noise(key, size))]


def reading(ref: ObjectRef) -> Callable[[str, int], int]:
    """Return a function that has captured a ref."""

    def read(log: str, key: int) -> int:
        note_run(log, key)
        return zlib.crc32(get_job_context().get(ref))

    return read


def hold_the_gil(log: str, key: int, milliseconds: int) -> int:
    """Hold the GIL in C, as a library may: no other thread of the worker runs."""
    note_run(log, key)
    ctypes.PyDLL(None).usleep(milliseconds * 1000)
    return key


def split(log: str, key: int, width: int, depth: int, retries: int) -> int:
    """Sum up `width` children of `width` children..., which note their runs under keys of their own."""
    note_run(log, key)
    if not depth:
        return mixed(width, 20)
    context = get_job_context()
    options = TaskOptions(retries=retries)
    children = [
        context.run(
            split, log, int.from_bytes(os.urandom(7)) | 1 << 60, width, depth - 1, retries, options=options
        )
        for _ in range(width)
    ]
    return sum(context.get(children))


def split_sum(width: int, depth: int) -> int:
    """Return what `split` gives."""
    return mixed(width, 20) * width**depth


def generate(log: str, key: int, count: int) -> Iterator[bytes]:
    note_run(log, key)
    for index, size in enumerate(sizes(key, count)):
        yield noise(key + index, size)


def fail(log: str, key: int) -> None:
    note_run(log, key)
    raise LookupError(key, "as it should")


def linger(log: str, key: int, seconds: float) -> int:
    """Take long, in steps between which it can be interrupted."""
    note_run(log, key)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.002)
    return key


def sleep_in_c(log: str, key: int, seconds: int) -> int:
    """Take long where no interrupt of Python's comes through."""
    note_run(log, key)
    ctypes.CDLL(None).sleep(seconds)
    return key


def die(log: str, key: int, times: int) -> int:
    """Kill the worker in each of the first `times` runs."""
    note_run(log, key)
    deaths = Path(f"{log}.{key}")
    with deaths.open("ab") as file:
        file.write(b"!")
    if deaths.stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


# --- actors ------------------------------------------------------------------------------------------------


class Adder:
    """An actor whose answers follow from their calls alone, so that restarts don't show in them."""

    def __init__(self, log: str, number: int, base: int) -> None:
        self._log = log
        self._number = number
        self._base = base
        self._incarnation = int.from_bytes(os.urandom(7))

    def add(self, key: int, value: Any) -> int:
        note_run(self._log, key, self._number, self._incarnation)
        return self._base + (zlib.crc32(value) if isinstance(value, bytes) else int(value))


class Tally:
    """An actor with a state: each answer follows from all calls since its process began, in their order."""

    def __init__(self, log: str, number: int) -> None:
        self._log = log
        self._number = number
        self._incarnation = int.from_bytes(os.urandom(7))
        self._tally = 0

    def add(self, key: int) -> tuple[int, int]:
        """Return which incarnation this is, and its tally."""
        note_run(self._log, key, self._number, self._incarnation)
        self._tally = add_to_tally(self._tally, key)
        return self._incarnation, self._tally
