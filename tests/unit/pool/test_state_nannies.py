"""A host that loses all its workers at once, but not its objects."""

from __future__ import annotations

from fray.runtime.pool.messages.commands import RunTask, StartWorker
from fray.runtime.pool.messages.events import NannyLost, ObjectsWanted, TaskDone, WorkerJoined
from fray.runtime.pool.messages.specs import DRIVER, Stored
from tests.unit.pool.state_script import Script


def test_tasks_wait_for_new_workers_and_are_charged_once() -> None:
    script = Script(3)
    [run] = script.submit(1, retries=1)
    assert isinstance(run, RunTask)
    commands = script.tell(DRIVER, NannyLost(1, "killed"))
    started = [command.worker for command in commands if isinstance(command, StartWorker)]
    assert [type(command) for command in commands] == [StartWorker] * 3
    again = script.tell(DRIVER, WorkerJoined(started[0]))
    assert [(command.worker, command.attempt) for command in again if isinstance(command, RunTask)] == [
        (started[0], 2)
    ]


def test_objects_of_the_host_are_still_there() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, Stored(1, 40)))
    script.tell(DRIVER, NannyLost(1, "killed"))
    [delivered] = script.tell(DRIVER, ObjectsWanted((1,)))
    assert delivered.outcome == Stored(1, 40)  # type: ignore[union-attr]


def test_one_of_an_unknown_host_is_ignored() -> None:
    script = Script(1)
    assert script.tell(DRIVER, NannyLost(7, "killed")) == []
