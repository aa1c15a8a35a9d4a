"""Processes that end as planned, while what they have submitted hasn't begun."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, TaskOptions, get_job_context
from tests.behaviour.gates import Gate, append, lines
from tests.pool.chaos.inspection import settles
from tests.pool.driver.processes import await_end


def pass_and_append(gate: Gate, story: Path) -> None:
    gate.pass_through()
    append(story, "ran")


def submit_and_keep(gate: Gate, story: Path, count: int) -> int:
    """Leave tasks behind whose refs only a global of this process holds."""
    ctx = get_job_context()
    builtins.kept = [ctx.run(pass_and_append, gate, story) for _ in range(count)]  # type: ignore[attr-defined]
    return os.getpid()


@pytest.mark.parametrize(
    "options", [TaskOptions(max_calls=1), TaskOptions(env={"OWN": "1"})], ids=["max_calls", "idle"]
)
def test_what_a_process_that_retires_had_submitted_runs(
    make_pool: Callable[[int], JobContext], gate: Gate, tmp_path: Path, options: TaskOptions
) -> None:
    ctx = make_pool(1)
    story = tmp_path / "story"
    await_end([ctx.get(ctx.run(submit_and_keep, gate, story, 5, options=options), timeout=60)])
    gate.open()
    assert settles(lambda: len(lines(story)) == 5)
    assert ctx.stats().cancelled == 0


def count_up(gate: Gate, story: Path, count: int) -> Iterator[int]:
    for number in range(count):
        gate.pass_through()
        append(story, str(number))
        yield number


def begin_to_read(gate: Gate, story: Path, count: int) -> int:
    ctx = get_job_context()
    builtins.kept = ctx.run(count_up, gate, story, count)  # type: ignore[attr-defined]
    return os.getpid()


def test_a_generator_of_a_process_that_retires_runs_to_its_end(
    make_pool: Callable[[int], JobContext], gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    story, count = tmp_path / "story", 3000  # more than its window takes
    options = TaskOptions(max_calls=1)
    await_end([ctx.get(ctx.run(begin_to_read, gate, story, count, options=options), timeout=60)])
    gate.open()
    assert settles(lambda: len(lines(story)) == count)
    assert ctx.stats().cancelled == 0


def go_on_in_a_thread(gate: Gate, story: Path) -> int:
    ctx = get_job_context()

    def work() -> None:
        gate.pass_through()
        append(story, f"ran, and got {ctx.get(ctx.run(abs, -3))}")

    threading.Thread(target=work).start()
    return os.getpid()


def test_a_process_that_retires_waits_for_the_threads_that_its_tasks_have_started(
    make_pool: Callable[[int], JobContext], gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    story = tmp_path / "story"
    once = TaskOptions(max_calls=1)
    process = ctx.get(ctx.run(go_on_in_a_thread, gate, story, options=once), timeout=60)
    # Others get its place before it has ended.
    assert ctx.get(ctx.run(os.getpid, options=once), timeout=60) != process
    gate.open()
    await_end([process])
    assert lines(story) == ["ran, and got 3"]
