"""Processes that end as planned, while what they have submitted hasn't begun."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
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
