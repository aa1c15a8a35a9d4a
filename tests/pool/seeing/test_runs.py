"""What the state machine remembers of runs, and counts: told by scripts, without processes."""

from __future__ import annotations

import pytest

from fray.runtime.pool.machine.records import Run
from fray.runtime.pool.messages.events import (
    ActorReady,
    ActorSubmitted,
    TaskBlocked,
    TaskCancelled,
    TaskDone,
    TaskSubmitted,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Outcome
from tests.unit.pool.state_script import ONE, Script, make_actor, make_task

RAISED = Failed(b"its exception")
CANCELLED = Failed(b"", "TaskCancelledError", "task 1")


def runs(script: Script) -> list[Run]:
    return list(script.state.runs(0.0))


@pytest.mark.parametrize(
    ("outcome", "word"), [(ONE, "done"), (RAISED, "failed"), (CANCELLED, "TaskCancelledError")]
)
def test_a_run_is_remembered_with_its_end(outcome: Outcome, word: str) -> None:
    script = Script(1)
    script.submit(1)
    script.now += 7
    script.tell(1, TaskDone(1, outcome, began=5.0, seconds=0.5))
    assert runs(script) == [Run("task 1", 1, "host-1", 5.0, 0.5, 1, 100.0, 100.0, 107.0, word, is_call=False)]


def test_each_attempt_is_a_run_and_a_lost_one_is_none() -> None:
    script = Script(1)
    script.submit(1, retries=1, retry_exceptions=1)
    script.tell(1, TaskDone(1, RAISED, began=5.0, seconds=0.5, retry=True))
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "killed"))
    assert [(run.attempt, run.outcome, run.submitted) for run in runs(script)] == [(1, "failed", 100.0)]
    assert script.state.stats().counters["retried"] == 2


def test_calls_are_told_from_tasks() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(1), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))  # worker 1 is for tasks
    script.tell(2, ActorReady(1, 1))
    script.tell(DRIVER, TaskSubmitted(make_task(2, actor=1, shape=(), method="add"), b""))
    assert script.state.count_running() == 1
    script.tell(2, TaskDone(2, ONE, began=5.0, seconds=0.5))
    assert script.state.count_running() == 0
    assert [run.is_call for run in runs(script)] == [True]


def test_the_decided_end_of_a_cancelled_task_counts_not_what_it_raised() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(DRIVER, TaskCancelled(1))
    script.tell(1, TaskDone(1, RAISED, began=5.0, seconds=0.5))
    assert [run.outcome for run in runs(script)] == ["TaskCancelledError"]
    counters = script.state.stats().counters
    assert (counters["cancelled"], counters["failed"], counters["done"]) == (1, 0, 0)


def test_a_task_that_raised_is_failed_and_not_cancelled() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, RAISED))
    counters = script.state.stats().counters
    assert (counters["cancelled"], counters["failed"]) == (0, 1)


def test_running_tasks_are_those_that_have_begun() -> None:
    script = Script(2)
    for task in range(1, 6):
        script.submit(task)
    assert script.state.count_running() == 2
    script.tell(1, TaskBlocked(1))
    assert script.state.count_running() == 3
