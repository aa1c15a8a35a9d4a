"""Many of a thing: tasks leave nothing behind, and any number of refs is passed to one task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FunctionType

import pytest

from fray.job import JobContext
from fray.runtime.pool.machine.functions import UNUSED_BYTES
from tests.pool.chaos.inspection import pool_of, settles

MakePool = Callable[[int], JobContext]
PATIENCE = 60.0
REMEMBERED = 100
"""Tasks that the pool remembers, for its timeline and its story. Those of one message share their times, so
the memory of the 10,000 that it would remember depends on how many came together."""
TASKS = 10_000
AT_ONCE = 2_500
CLOSURES = 12
CLOSURE_BYTES = 4 * 1024**2


def run_tasks(ctx: JobContext, count: int) -> None:
    for _ in range(count // AT_ONCE):
        assert ctx.get([ctx.run(int) for _ in range(AT_ONCE)]) == [0] * AT_ONCE


def count_blocks() -> int:
    """Return how many pieces of memory the objects of this process take."""
    gc.collect()
    return sys.getallocatedblocks()


def test_tasks_that_have_ended_leave_no_memory_behind(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fray.runtime.pool.machine.tables.REMEMBERED_TASKS", REMEMBERED)
    monkeypatch.setattr("fray.runtime.pool.machine.tables.REMEMBERED_TRANSITIONS", REMEMBERED)
    ctx = make_pool(1)

    def count_all() -> tuple[int, int]:
        in_worker = ctx.get(ctx.run(count_blocks))
        assert settles(lambda: pool_of(ctx).stats().objects == 0)
        return count_blocks(), in_worker

    run_tasks(ctx, AT_ONCE)
    before = count_all()
    run_tasks(ctx, TASKS)
    # One piece of each fifth task would be seen.
    assert [now - then < TASKS // 5 for now, then in zip(count_all(), before, strict=True)] == [True, True]


def add_all(*numbers: int) -> int:
    return sum(numbers)


def test_one_task_takes_a_hundred_thousand_refs(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    refs = [ctx.put(number) for number in range(100_000)]
    assert ctx.get(ctx.run(add_all, *refs), timeout=PATIENCE) == sum(range(100_000))


def measuring(data: bytes) -> Callable[[], int]:
    def measure() -> int:
        return len(data)

    return measure


def count_kept() -> int:
    """Return how many functions of `measuring` this process has."""
    functions = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    return sum(each.__qualname__ == "measuring.<locals>.measure" for each in functions)


def test_a_worker_keeps_no_more_bytes_of_unused_functions_than_the_head(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    for number in range(CLOSURES):
        assert ctx.get(ctx.run(measuring(bytes([number]) * CLOSURE_BYTES))) == CLOSURE_BYTES
    assert 0 < ctx.get(ctx.run(count_kept)) <= UNUSED_BYTES // CLOSURE_BYTES < CLOSURES
