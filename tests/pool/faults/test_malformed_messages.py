"""A worker that says what the head can't take is lost with what it ran; nobody else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fray.errors import WorkerDiedError
from fray.job import JobContext, TaskOptions
from tests.behaviour.gates import lines
from tests.pool.chaos.inspection import pool_of
from tests.pool.faults.malformed import MESSAGES, say

PATIENCE = 60.0


def test_workers_are_cut_off_and_their_tasks_run_again(
    ctx: JobContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ctx.put("kept")
    pool = pool_of(ctx)
    for count, what in enumerate(MESSAGES, start=1):
        runs = tmp_path / str(count)
        assert ctx.get(ctx.run(say, what, runs), timeout=PATIENCE) == 7, what
        assert lines(runs) == ["run", "run"], what
        assert pool.refusals()["malformed"] == pool.stats().counters["workers_lost"] == count, what
    assert ctx.get(ctx.run(str.upper, kept), timeout=PATIENCE) == "KEPT"
    told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == len(MESSAGES)
    assert all("is cut off" in line for line in told)


def test_the_story_of_a_task_tells_what_its_worker_said(ctx: JobContext, tmp_path: Path) -> None:
    ref = ctx.run(say, "a list instead of a tuple", tmp_path / "runs", options=TaskOptions(retries=0))
    with pytest.raises(WorkerDiedError, match=r"cut off, since it sent this: RefsAdded has as its ids \[1\]"):
        ctx.get(ref, timeout=PATIENCE)
