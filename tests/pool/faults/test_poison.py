"""A task that kills every worker it meets ends after its retries, and takes nobody with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.errors import WorkerDiedError
from fray.job import JobContext, TaskOptions
from tests.behaviour.gates import lines
from tests.pool.faults import deaths

TASKS = 300
POISONED = 40


def test_a_poisoned_task_among_others_that_were_sent_ahead(ctx: JobContext, tmp_path: Path) -> None:
    # So fast that the pool sends many ahead.
    ctx.get([ctx.run(deaths.die_always, tmp_path, TASKS + n, POISONED) for n in range(100)])
    options = TaskOptions(retries=2, name="poison")
    refs = [ctx.run(deaths.die_always, tmp_path, n, POISONED, options=options) for n in range(TASKS)]
    poisoned = refs.pop(POISONED)
    assert ctx.get(refs) == [n for n in range(TASKS) if n != POISONED]
    with pytest.raises(WorkerDiedError) as caught:
        ctx.get(poisoned)
    assert caught.value.attempts == 3
    assert len(caught.value.story) == 3
    assert len(lines(tmp_path / str(POISONED))) == 3
    for n in range(TASKS):
        # Each was charged at most once: for a worker where it waited behind the first run.
        assert n == POISONED or len(lines(tmp_path / str(n))) <= 2


def test_many_poisoned_tasks_at_once(ctx: JobContext, tmp_path: Path) -> None:
    options = TaskOptions(retries=1)
    bad = [ctx.run(deaths.die_always, tmp_path, n, n, options=options) for n in range(12)]
    good = [ctx.run(deaths.die_always, tmp_path, 100 + n, 0) for n in range(50)]
    assert ctx.get(good) == [100 + n for n in range(50)]
    for n, ref in enumerate(bad):
        with pytest.raises(WorkerDiedError):
            ctx.get(ref)
        assert len(lines(tmp_path / str(n))) <= 2
