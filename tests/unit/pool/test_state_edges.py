"""What only shows when things cross: early timers, slow tasks behind fast ones, callers that die."""

from __future__ import annotations

from fray.runtime.pool.messages.commands import FreeObject, RunTask
from fray.runtime.pool.messages.events import (
    ClientLost,
    FilesFound,
    HostLost,
    ObjectPut,
    ObjectsWanted,
    TaskDone,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, Stored
from tests.unit.pool.state_script import FAST, ONE, Script


def test_a_task_that_took_the_place_of_another_runs() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, ONE, seconds=FAST))
    for task in (2, 3, 4):
        script.submit(task)
    assert script.state.stats().tasks == {"running": 1, "sent": 2}
    script.tell(1, TaskDone(2, ONE, started=3, seconds=FAST))
    assert script.state.stats().tasks == {"running": 1, "sent": 1}
    assert script.state.stats().hosts[1].free == (("CPU", 0.0),)


def test_a_task_that_is_not_sent_ahead_is_not_passed_over_by_those_that_are() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, ONE, seconds=FAST))
    waiting = [
        command.spec.id
        for task in range(2, 202)
        for command in script.submit(task, parent=7)
        if isinstance(command, RunTask)
    ]
    script.submit(500, function=b"unknown", parent=8)
    for done in range(1, 40):
        task = waiting.pop(0)
        started = waiting[0] if waiting else 0
        commands = script.tell(1, TaskDone(task, ONE, started=started, seconds=FAST))
        sent = [command.spec.id for command in commands if isinstance(command, RunTask)]
        if 500 in sent:
            assert done <= 34  # what was sent ahead before it came, and one more
            return
        waiting += sent
    raise AssertionError("the unknown task never began")


def test_the_timer_of_an_earlier_run_does_not_end_a_later_one() -> None:
    script = Script(1)
    script.submit(1, timeout=2.0)
    script.now += 1.5
    script.tell(DRIVER, WorkerLost(1, "died"))
    script.tell(DRIVER, WorkerJoined(2))
    script.now += 0.5
    assert script.tell(DRIVER, TimerFired(("timeout", 1))) == []
    script.now += 1.5
    assert script.tell(DRIVER, TimerFired(("timeout", 1))) != []


def test_what_a_lost_worker_submitted_and_nobody_else_wants_does_not_begin() -> None:
    script = Script(1)
    script.submit(1)
    child = 1 << 40
    script.submit(child, client=1, parent=1)
    script.submit(child + 1, client=1, parent=1)
    script.tell(1, ObjectPut(child + 2, Stored(1, 40)))
    script.tell(1, TaskDone(1, ONE, seconds=1.0))
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "died"))
    assert script.tell(DRIVER, ClientLost(1)) == [
        FreeObject(1, child),  # it ran there when the worker died, and may have written its result
        FreeObject(1, child + 2),
    ]
    assert script.tell(DRIVER, WorkerJoined(2)) == []
    assert script.state.stats().objects == 1


def test_what_a_retired_worker_submitted_begins_and_its_values_go() -> None:
    script = Script(2)
    script.submit(1)
    script.submit(2)
    child = 1 << 40
    script.submit(child, client=1, parent=1, deps=(2,), holds=(2,))
    script.tell(1, ObjectPut(child + 1, Stored(1, 40)))
    script.tell(1, TaskDone(1, ONE, seconds=1.0))
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "exited with code 86", expected=True, retired=True))
    assert script.tell(DRIVER, ClientLost(1, retired=True)) == [FreeObject(1, child + 1)]
    (begun,) = script.tell(2, TaskDone(2, ONE, seconds=1.0))
    assert isinstance(begun, RunTask)
    assert begun.spec.id == child
    script.tell(2, TaskDone(child, ONE, seconds=1.0))
    assert script.state.stats().objects == 2


def test_tasks_of_a_lost_host_go_on_elsewhere() -> None:
    script = Script(1, 1)
    script.submit(1)
    script.submit(2)
    script.tell(DRIVER, ObjectsWanted((1, 2)))
    assert script.tell(DRIVER, HostLost(1, "unplugged")) == []
    (again,) = script.tell(2, TaskDone(2, ONE, seconds=1.0))[1:]
    assert isinstance(again, RunTask)
    assert (again.worker, again.spec.id, again.attempt) == (2, 1, 2)


def test_a_retry_begins_alone_and_before_what_came_after_it() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, ONE, seconds=FAST))
    for task in (2, 3):
        script.submit(task)
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "died"))
    script.submit(4)
    (first,) = script.tell(DRIVER, WorkerJoined(2))
    assert isinstance(first, RunTask)
    assert (first.spec.id, first.waits, first.attempt) == (2, False, 2)
    (second,) = script.tell(2, TaskDone(2, ONE, seconds=FAST))
    assert isinstance(second, RunTask)
    assert (second.spec.id, second.waits, second.attempt) == (3, False, 2)


def test_a_retry_shares_no_worker_while_another_one_is_missing() -> None:
    script = Script(2)
    script.submit(1)
    script.submit(2)
    script.now += 5
    # Its CPU is free at once, but the worker that will use it isn't there yet.
    script.tell(DRIVER, WorkerLost(1, "died"))
    (first,) = script.tell(2, TaskDone(2, ONE, seconds=1.0))
    assert isinstance(first, RunTask)
    assert (first.worker, first.spec.id, first.attempt) == (2, 1, 2)
    assert script.submit(3) == []
    (second,) = script.tell(DRIVER, WorkerJoined(3))
    assert isinstance(second, RunTask)
    assert (second.worker, second.spec.id) == (3, 3)


def test_files_of_lost_workers_that_nobody_was_told_of_are_freed() -> None:
    script = Script(1)
    first = 1 << 40
    script.submit(1)
    script.tell(1, ObjectPut(first, Stored(1, 40)))
    assert script.tell(DRIVER, FilesFound(1, (first, first + 1))) == []
    script.tell(1, TaskDone(1, Stored(1, 40, (first,)), seconds=1.0))
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "died"))
    script.tell(DRIVER, ClientLost(1))
    found = FilesFound(1, (1, 7, first, first + 1))
    assert script.tell(DRIVER, found) == [FreeObject(1, first + 1)]
