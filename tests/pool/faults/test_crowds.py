"""Many at once, or one in another without end: it takes its time, and it's right."""

from __future__ import annotations

import threading
from pathlib import Path

from fray.job import JobContext, get_job_context
from tests.behaviour.gates import lines
from tests.pool.chaos.inspection import pool_of, settles
from tests.pool.faults import values

MIB = 1024**2
BUFFERED = 16
"""Items that a generator may be ahead: the default of `TaskSpec.buffered`."""


def add_up(made: Path, count: int, size: int) -> int:
    """Take the items of a generator that runs as another task."""
    context = get_job_context()
    return sum(context.get(item)[0] for item in context.run(values.give, made, count, size))  # type: ignore[attr-defined]


def test_a_slow_consumer_bounds_what_is_made(ctx: JobContext, tmp_path: Path) -> None:
    made = tmp_path / "made"
    stream = ctx.run(values.give, made, 1_000, MIB)
    pool = pool_of(ctx)
    for taken in range(5):
        # It waits for its consumer: nothing more is made before the next item is taken.
        assert settles(lambda: pool.stats().tasks.get("blocked") == 1)
        assert len(lines(made)) == taken + BUFFERED
        assert pool.objects._store.usage().memory <= (taken + BUFFERED + 1) * (MIB + 1000)
        assert ctx.get(next(stream))[:1] == bytes([taken])  # type: ignore[call-overload]
        assert settles(lambda taken=taken: len(lines(made)) == taken + 1 + BUFFERED)  # type: ignore[misc]
    del stream
    assert settles(lambda: pool.stats().tasks.get("blocked") is None)
    assert len(lines(made)) <= 5 + BUFFERED


def test_a_thousand_items_between_two_tasks(ctx: JobContext, tmp_path: Path) -> None:
    expected = sum(index % 256 for index in range(1_000))
    assert ctx.get(ctx.run(add_up, tmp_path / "small", 1_000, 10)) == expected
    assert ctx.get(ctx.run(add_up, tmp_path / "large", 1_000, 20_000)) == expected


def test_tasks_that_wait_for_each_other_200_levels_deep(ctx: JobContext) -> None:
    assert ctx.get([ctx.run(values.nest, 200), ctx.run(values.nest, 100)]) == [200, 100]


def test_16_threads_that_submit_at_once(ctx: JobContext) -> None:
    wrong: list[object] = []
    start = threading.Barrier(16)

    def storm(number: int) -> None:
        start.wait()
        refs = [ctx.run(pow, number, 2) for _ in range(500)]
        got = ctx.get(refs)
        if got != [number**2] * 500:
            wrong.append((number, got))

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
