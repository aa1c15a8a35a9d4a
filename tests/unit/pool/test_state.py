"""The main lives of tasks and objects: exactly which commands follow which events."""

from __future__ import annotations

import pickle

import pytest

from fray.runtime.pool.machine.records import TaskRecord
from fray.runtime.pool.machine.slots import THREADS_IDLE_SECONDS
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.machine.transitions import InvalidTransition
from fray.runtime.pool.machine.workers import LONGEST_BACKOFF, MOST_FAILED_STARTS
from fray.runtime.pool.messages.commands import (
    CancelTask,
    CheckObject,
    Deliver,
    DeliverItems,
    DropTimer,
    FreeObject,
    ReclaimTasks,
    ResumeGenerator,
    RunTask,
    SetTimer,
    SpillObject,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    ClientLost,
    FetchFailed,
    HostJoined,
    HostLost,
    ItemsConsumed,
    ItemsProduced,
    ObjectChecked,
    ObjectPut,
    ObjectsWanted,
    RefsReleased,
    TaskBegun,
    TaskBlocked,
    TaskCancelled,
    TaskDone,
    TasksReturned,
    TaskSubmitted,
    TaskUnblocked,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Inline, Outcome, Profile, Stored
from tests.unit.pool.state_script import FAST, ONE, Script, make_task

LATE = Failed(b"", "TaskTimeoutError", "task 1", (), (("seconds", 2.0),))


def run(worker: int, task_id: int, *, blob: bytes = b"", waits: bool = False, **more: object) -> RunTask:
    attempt = more.pop("attempt", 1)
    deps = more.pop("values", ())
    skip = more.pop("skip", 0)
    client = more.pop("client", DRIVER)
    return RunTask(worker, make_task(task_id, **more), blob, deps, waits, attempt, skip, client)  # type: ignore[arg-type]


def warm(script: Script, seconds: float = FAST, function: bytes = b"f") -> None:
    """Let the pool learn how long a function's tasks take; worker 1 then has the function."""
    script.submit(900, function=function)
    script.tell(1, TaskDone(900, ONE, seconds=seconds))
    script.tell(DRIVER, RefsReleased((900,)))


def test_a_task_is_run_delivered_and_forgotten() -> None:
    script = Script(1)
    assert script.submit(1) == [run(1, 1, blob=b"blob")]
    assert script.tell(DRIVER, ObjectsWanted((1,))) == []
    assert script.tell(1, TaskDone(1, ONE)) == [Deliver(DRIVER, 1, ONE)]
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, ONE)]
    assert script.tell(DRIVER, RefsReleased((1,))) == []
    assert script.state.stats().objects == 0


def test_a_result_that_was_wanted_with_its_task_is_delivered_unasked() -> None:
    script = Script(1)
    spec = make_task(1)
    assert script.tell(DRIVER, TaskSubmitted(spec, b"blob", wanted=True)) == [run(1, 1, blob=b"blob")]
    assert script.tell(1, TaskDone(1, ONE)) == [Deliver(DRIVER, 1, ONE)]
    script.tell(1, TaskSubmitted(make_task(2), b"blob", wanted=True))
    assert script.tell(1, TaskDone(2, ONE)) == [Deliver(1, 2, ONE)]


def test_a_task_whose_result_nobody_wants_still_runs() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2)
    assert script.tell(DRIVER, RefsReleased((2,))) == []
    assert script.tell(1, TaskDone(1, ONE, seconds=1.0)) == [run(1, 2)]
    assert script.tell(1, TaskDone(2, ONE)) == []
    assert script.state.stats().objects == 1


def test_a_task_waits_for_what_it_reads_and_gets_it() -> None:
    script = Script(2)
    value = Stored(1, 40)
    script.submit(1)
    assert script.submit(2, deps=(1,), holds=(1,)) == []
    assert script.tell(DRIVER, RefsReleased((1,))) == []
    reader = run(2, 2, blob=b"blob", deps=(1,), holds=(1,), values=(value,))
    assert script.tell(1, TaskDone(1, value)) == [reader]
    # The result of a task whose value was small is not made again: what it read goes.
    assert script.tell(2, TaskDone(2, ONE)) == [FreeObject(1, 1)]


def test_what_fails_fails_those_that_need_it() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2, deps=(1,), holds=(1,))
    script.tell(DRIVER, ObjectsWanted((2,)))
    raised = Failed(b"raised")
    assert script.tell(1, TaskDone(1, raised)) == [Deliver(DRIVER, 2, raised)]


def test_a_put_object_lives_while_something_refers_to_it() -> None:
    script = Script(1)
    assert script.tell(DRIVER, ObjectPut(1, Stored(1, 40))) == []
    assert script.tell(DRIVER, ObjectPut(2, Inline(b"a list with 1 in it", (1,)))) == []
    assert script.tell(DRIVER, RefsReleased((1,))) == []
    assert script.tell(DRIVER, RefsReleased((2,))) == [FreeObject(1, 1)]


def test_what_is_too_much_for_memory_is_spilled_oldest_first() -> None:
    script = Script(1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 600)))
    assert script.tell(DRIVER, ObjectPut(2, Stored(1, 600))) == [SpillObject(1, 1)]
    assert script.state.stats().hosts[1].spilled == 600


def test_what_was_written_to_disk_takes_no_memory() -> None:
    script = Script(1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 600)))
    assert script.tell(DRIVER, ObjectPut(2, Stored(1, 600, on_disk=True))) == []
    host = script.state.stats().hosts[1]
    assert (host.memory, host.spilled) == (600, 600)
    script.tell(DRIVER, RefsReleased((1, 2)))
    host = script.state.stats().hosts[1]
    assert (host.memory, host.spilled) == (0, 0)


def test_fast_tasks_are_sent_ahead_and_slow_ones_are_not() -> None:
    script = Script(1)
    warm(script, 0.25e-3)
    assert script.submit(1) == [run(1, 1)]
    for task in (2, 3, 4, 5):
        assert script.submit(task) == [run(1, task, waits=True)]
    assert script.submit(6) == []  # a millisecond of work is there
    assert script.tell(1, TaskDone(1, ONE, started=2, seconds=1.0)) == []  # they have become slow
    assert script.tell(1, TaskDone(2, ONE, started=3, seconds=1.0)) == []


@pytest.mark.parametrize("more", [{"retries": 0}, {"timeout": 1.0}])
def test_tasks_that_must_not_wait_in_a_worker_are_not_sent_ahead(more: dict[str, object]) -> None:
    script = Script(1)
    warm(script)
    script.submit(1)
    assert script.submit(2, **more) == []


def test_a_worker_that_ends_its_last_before_it_gets_the_next_keeps_its_resources() -> None:
    script = Script(1)
    warm(script)
    script.submit(1)
    script.submit(2)
    assert script.tell(1, TaskDone(1, ONE, started=0, seconds=FAST)) == []
    assert script.state.stats().hosts[1].free == (("CPU", 0.0),)
    script.tell(1, TaskDone(2, ONE, seconds=FAST))
    assert script.state.stats().hosts[1].free == (("CPU", 1.0),)


def test_an_idle_worker_gets_what_waits_at_a_busy_one() -> None:
    script = Script(2)
    warm(script)
    script.submit(1)
    script.submit(2)
    sent = [command for task in range(3, 9) for command in script.submit(task)]
    ahead = {1: [3, 5, 7], 2: [4, 6, 8]}
    assert {worker: [c.spec.id for c in sent if c.worker == worker] for worker in ahead} == ahead  # type: ignore[union-attr]
    script.tell(2, TaskDone(1, ONE, started=4, seconds=FAST))
    script.tell(2, TaskDone(4, ONE, started=6, seconds=FAST))
    script.tell(2, TaskDone(6, ONE, started=8, seconds=FAST))
    assert script.tell(2, TaskDone(8, ONE, seconds=FAST)) == [ReclaimTasks(1, 2)]
    assert script.tell(1, TasksReturned((5, 7))) == [run(2, 5), run(1, 7, waits=True)]


def test_what_was_sent_ahead_and_has_begun_is_not_asked_for() -> None:
    script = Script(2)
    warm(script)
    script.submit(1)
    script.submit(2)
    script.submit(3)
    assert script.state.stats().tasks == {"running": 2, "sent": 1}
    assert script.tell(2, TaskDone(1, ONE, seconds=FAST)) == [ReclaimTasks(1, 1)]
    # It came when nothing ran there any more, and what came after it finds it running.
    script.tell(1, TaskDone(2, ONE, seconds=FAST))
    assert script.tell(1, TaskBegun(3)) == []
    assert script.state.stats().tasks == {"running": 1}
    assert script.tell(1, TasksReturned(())) == []
    assert script.state.count_running() == 1
    script.tell(1, TaskDone(3, ONE, seconds=FAST))
    assert script.state.stats().hosts[1].free == (("CPU", 2.0),)


def test_tasks_wait_for_a_process_of_their_own_rather_than_share_one() -> None:
    script = Script()
    starts = script.tell(DRIVER, HostJoined(1, "host-1", (("CPU", 2.0),), 2, 1000))
    one, other = [start.worker for start in starts]  # type: ignore[union-attr]
    script.tell(DRIVER, WorkerJoined(one))
    assert script.submit(1, retries=0) == [run(one, 1, blob=b"blob", retries=0)]
    assert script.submit(2, retries=0) == []
    [timer] = script.tell(DRIVER, WorkerLost(other, "killed by signal 9 (SIGKILL)"))
    script.now += timer.seconds  # type: ignore[union-attr]
    [start] = script.tell(DRIVER, TimerFired(timer.key))  # type: ignore[union-attr]
    again = start.worker  # type: ignore[union-attr]
    assert script.tell(DRIVER, WorkerJoined(again)) == [run(again, 2, blob=b"blob", retries=0)]


def test_tasks_of_less_than_a_cpu_share_a_process_up_to_one() -> None:
    script = Script(2)
    half = (("CPU", 0.5),)
    workers = [script.submit(task, shape=half)[0].worker for task in range(1, 5)]  # type: ignore[union-attr]
    assert sorted(workers) == [1, 1, 2, 2]


def test_a_blocked_task_lends_its_place() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2)
    assert script.tell(1, TaskBlocked(1)) == [run(1, 2)]
    assert script.tell(1, TaskUnblocked(1)) == []
    assert script.state.stats().hosts[1].free == (("CPU", -1.0),)
    script.submit(3)
    assert script.tell(1, TaskDone(2, ONE, seconds=1.0)) == []
    assert script.tell(1, TaskDone(1, ONE, seconds=1.0)) == [run(1, 3)]


def test_a_task_is_tried_again_as_often_as_it_may() -> None:
    script = Script(1)
    script.submit(1, retries=1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.now += 5
    assert script.tell(DRIVER, WorkerLost(1, "killed by signal 9 (SIGKILL)")) == [
        StartWorker(1, 2, Profile())
    ]
    assert script.tell(DRIVER, WorkerJoined(2)) == [run(2, 1, blob=b"blob", attempt=2, retries=1)]
    lost = script.tell(DRIVER, WorkerLost(2, "killed by signal 9 (SIGKILL)"))
    story = tuple(f"attempt {n} was lost: worker {n} on host-1 killed by signal 9 (SIGKILL)" for n in (1, 2))
    details = (("worker", "worker 2"), ("attempts", 2))
    assert lost[:1] == [Deliver(DRIVER, 1, Failed(b"", "WorkerDiedError", "task 1", story, details))]


def test_workers_that_die_at_once_are_started_later_and_later() -> None:
    script = Script(1)
    waits = []
    worker = 1
    for _ in range(9):
        (timer,) = script.tell(DRIVER, WorkerLost(worker, "exited with code 1"))
        assert isinstance(timer, SetTimer)
        waits.append(timer.seconds)
        script.now += timer.seconds
        (start,) = script.tell(DRIVER, TimerFired(timer.key))
        assert isinstance(start, StartWorker)
        worker = start.worker
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_lost_object_is_made_again_from_its_task() -> None:
    script = Script(1, 1)
    script.submit(1)
    script.submit(2, deps=(1,), holds=(1,))
    here = Stored(1, 40)
    assert script.tell(1, TaskDone(1, here)) == [run(1, 2, deps=(1,), holds=(1,), values=(here,))]
    script.tell(1, TaskDone(2, here))
    # Nobody refers to what the result was made from; its task is kept for as long as the result.
    assert script.tell(DRIVER, RefsReleased((1,))) == [FreeObject(1, 1)]
    script.tell(DRIVER, HostLost(1, "unplugged"))
    assert script.tell(DRIVER, ObjectsWanted((2,))) == [run(2, 1, blob=b"blob", attempt=2)]
    there = Stored(2, 40)
    assert script.tell(2, TaskDone(1, there)) == [
        run(2, 2, deps=(1,), holds=(1,), values=(there,), attempt=2)
    ]
    # With its task done, what it read goes again.
    assert script.tell(2, TaskDone(2, there)) == [FreeObject(2, 1), Deliver(DRIVER, 2, there)]
    assert script.tell(DRIVER, RefsReleased((2,))) == [FreeObject(2, 2)]
    assert script.state.stats().objects == 0


def test_a_put_object_that_cannot_be_read_is_lost() -> None:
    script = Script(1)
    script.tell(DRIVER, ObjectPut(1, Stored(1, 40)))
    lost = Failed(b"", "ObjectLostError", "1", (), (("reason", "it couldn't be read: no such file"),))
    assert script.tell(DRIVER, FetchFailed(1, 1, "no such file")) == [CheckObject(1, 1)]
    assert script.tell(DRIVER, ObjectChecked(1, 1, there=False)) == [Deliver(DRIVER, 1, lost)]


def test_a_waiting_task_is_cancelled_at_once_and_a_running_one_is_told() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2)
    script.tell(DRIVER, ObjectsWanted((1, 2)))
    gone = Failed(b"", "TaskCancelledError", "task 2")
    assert script.tell(DRIVER, TaskCancelled(2)) == [Deliver(DRIVER, 2, gone)]
    assert script.tell(DRIVER, TaskCancelled(1)) == [CancelTask(1, 1), SetTimer(5.0, ("kill", 1))]
    script.now += 5
    assert script.tell(DRIVER, TimerFired(("kill", 1))) == [
        StopWorker(1, True, "task 1 didn't end 5 s after it had to")
    ]
    commands = script.tell(DRIVER, WorkerLost(1, "killed", expected=True))
    assert commands[0] == Deliver(DRIVER, 1, Failed(b"", "TaskCancelledError", "task 1"))


def test_who_dies_with_a_cancelled_task_is_not_charged() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2, shape=(), retries=0)
    assert script.tell(DRIVER, TaskCancelled(1, force=True)) == [
        StopWorker(1, True, "task 1 was cancelled by force")
    ]
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "killed", expected=True))
    assert script.tell(DRIVER, WorkerJoined(2)) == [run(2, 2, blob=b"blob", attempt=2, shape=(), retries=0)]


def test_a_worker_that_has_no_thread_for_a_task_alone_there_is_replaced() -> None:
    script = Script(1)
    script.submit(1)
    script.submit(2, shape=())
    no_thread = Failed(b"", "ThreadStartError", "task", (), (("reason", "can't start new thread; it has 3"),))
    assert not [each for each in script.tell(1, TaskDone(1, no_thread)) if isinstance(each, StopWorker)]
    ended = script.tell(1, TaskDone(2, no_thread))
    assert StopWorker(1, False, "it could start no thread") in ended
    script.submit(3)
    script.tell(DRIVER, WorkerLost(1, "ended", expected=True))
    assert run(2, 3, blob=b"blob", attempt=1) in script.tell(DRIVER, WorkerJoined(2))


def test_a_task_that_runs_too_long_times_out() -> None:
    script = Script(1)
    assert script.submit(1, timeout=2.0)[1:] == [SetTimer(2.0, ("timeout", 1))]
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.now += 2
    assert script.tell(DRIVER, TimerFired(("timeout", 1)))[0] == CancelTask(1, 1)
    ended = script.tell(1, TaskDone(1, Failed(b"interrupted")))
    assert ended == [DropTimer(("timeout", 1)), Deliver(DRIVER, 1, LATE)]


@pytest.mark.parametrize(("seconds", "outcome"), [(2.5, LATE), (1.5, b"value")])
def test_whether_a_task_was_late_is_its_workers_word_and_not_who_is_heard_first(
    seconds: float, outcome: Outcome
) -> None:
    for timer_first in (True, False):
        script = Script(1)
        script.submit(1, timeout=2.0)
        script.tell(DRIVER, ObjectsWanted((1,)))
        script.now += 60
        if timer_first:
            script.tell(DRIVER, TimerFired(("timeout", 1)))
        done = TaskDone(1, b"value", seconds=seconds)
        assert script.tell(1, done)[1] == Deliver(DRIVER, 1, outcome)


def test_a_file_that_came_too_late_is_freed() -> None:
    script = Script(1)
    script.submit(1, timeout=2.0)
    script.tell(DRIVER, ObjectsWanted((1,)))
    commands = script.tell(1, TaskDone(1, Stored(1, 5), seconds=2.5))
    assert commands[1] == Deliver(DRIVER, 1, LATE)
    commands += script.tell(DRIVER, RefsReleased((1,)))
    assert FreeObject(1, 1) in commands


def test_a_shape_that_no_host_has_is_refused_at_once() -> None:
    script = Script(2)
    script.submit(1, shape=(("GPU", 1.0),))
    details = (("wants", "GPU: 1"), ("offered", "CPU: 2"))
    refused = Failed(b"", "UnschedulableError", "task 1", (), details)
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, refused)]


def test_the_host_with_most_of_what_a_task_reads_runs_it() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(1, Stored(2, 100)))
    script.tell(DRIVER, ObjectPut(2, Stored(3, 200)))
    values = (Stored(2, 100), Stored(3, 200))
    assert script.submit(3, deps=(1, 2), holds=(1, 2)) == [
        run(3, 3, blob=b"blob", deps=(1, 2), holds=(1, 2), values=values)
    ]


def test_a_profile_has_processes_of_its_own_that_end_when_idle() -> None:
    script = Script(1)
    profile = Profile((("A", "1"),))
    assert script.submit(1, profile=profile) == [StartWorker(1, 2, profile)]
    idle = SetTimer(1.0, ("idle", 2))
    assert script.tell(DRIVER, WorkerJoined(2)) == [idle, run(2, 1, blob=b"blob", profile=profile)]
    script.now += 0.5
    assert script.tell(2, TaskDone(1, ONE)) == []
    script.now += 0.5
    assert script.tell(DRIVER, TimerFired(("idle", 2))) == [SetTimer(0.5, ("idle", 2))]
    script.now += 0.5
    assert script.tell(DRIVER, TimerFired(("idle", 2))) == [StopWorker(2, False, "it had no work")]


def test_tasks_of_several_cpus_share_processes_whose_libraries_use_them_all() -> None:
    script = Script(3)
    two = (("CPU", 2.5),)
    profile = Profile(threads=2)
    assert script.submit(1, shape=two) == [StartWorker(1, 4, profile)]
    told = script.tell(DRIVER, WorkerJoined(4))
    assert told == [SetTimer(THREADS_IDLE_SECONDS, ("idle", 4)), run(4, 1, blob=b"blob", shape=two)]
    script.tell(4, TaskDone(1, ONE))
    assert script.submit(2, shape=(("CPU", 2.0),)) == [run(4, 2, shape=(("CPU", 2.0),))]


def test_a_generator_goes_on_after_a_retry_where_it_was() -> None:
    script = Script(1)
    script.submit(1, streaming=True)
    item = 1 << 40
    assert script.tell(1, ItemsProduced(1, 0, ((item, ONE),))) == [DeliverItems(DRIVER, 1, 0, ((item, ONE),))]
    assert script.tell(DRIVER, ItemsConsumed(1, 1)) == [ResumeGenerator(1, 1, 1)]
    script.now += 5
    script.tell(DRIVER, WorkerLost(1, "killed"))
    assert script.tell(DRIVER, ClientLost(1)) == []
    again = run(2, 1, blob=b"blob", streaming=True, attempt=2, skip=1)
    assert script.tell(DRIVER, WorkerJoined(2)) == [again, ResumeGenerator(2, 1, 1)]
    repeated = script.tell(2, ItemsProduced(1, 0, ((item + 1, Stored(1, 40)),)))
    assert repeated == [FreeObject(1, item + 1)]
    assert script.tell(DRIVER, RefsReleased((1,))) == [CancelTask(2, 1), SetTimer(5.0, ("kill", 1))]


def test_a_task_that_needs_many_cpus_is_not_starved_by_small_ones() -> None:
    script = Script(2)
    warm(script)
    running = {
        command.worker: task
        for task in (1, 2)
        for command in script.submit(task, function=b"slow")
        if isinstance(command, RunTask)
    }
    script.submit(3, function=b"large", shape=(("CPU", 2.0),))
    for task in range(4, 104):
        script.submit(task, function=b"slow")
    for _ in range(60):
        worker = min(running, key=lambda worker: running[worker])
        commands = script.tell(worker, TaskDone(running.pop(worker), ONE, seconds=1.0))
        for start in [each for each in commands if isinstance(each, StartWorker)]:
            commands = script.tell(DRIVER, WorkerJoined(start.worker))
        for command in [each for each in commands if not isinstance(each, SetTimer)]:
            assert isinstance(command, RunTask)
            if command.spec.id == 3:
                return
            running[command.worker] = command.spec.id
    raise AssertionError("the large task never began")


def test_no_caller_waits_for_more_than_one_task_of_each_other() -> None:
    script = Script(1)
    warm(script)
    for task in range(1, 101):
        script.submit(task, parent=7)
    # The worker takes turns itself, so what counts is that the second caller's task reaches it at once.
    assert script.submit(200, parent=8) == [run(1, 200, parent=8, waits=True)]
    # Where nothing is sent ahead the head's own turns count.
    script = Script(1)
    for task in range(1, 11):
        script.submit(task, parent=7)
    for task in range(11, 14):
        script.submit(task, parent=8)
    order = []
    running = 1
    for _ in range(6):
        (command,) = script.tell(1, TaskDone(running, ONE, seconds=1.0))
        assert isinstance(command, RunTask)
        running = command.spec.id
        order.append(running)
    assert order == [2, 11, 3, 12, 4, 13]


def test_words_about_what_is_not_ones_own_are_counted_and_change_nothing() -> None:
    script = Script(2)
    script.submit(1)
    for source, event in (
        (2, TaskDone(1, ONE)),
        (2, TaskBlocked(1)),
        (1, TaskUnblocked(1)),
        (2, TaskBegun(1)),
        (99, TaskBegun(1)),
        (2, TaskDone(77, Stored(1, 40))),
        (99, RefsReleased((1,))),
        (0, WorkerLost(99, "unheard of")),
        (0, RefsReleased((55,))),
    ):
        script.tell(source, event)
    assert sum(script.state.stats().ignored.values()) == 9
    assert script.state.stats().tasks == {"running": 1}
    assert script.tell(1, TaskDone(1, ONE)) == []
    assert script.tell(DRIVER, ObjectsWanted((1,))) == [Deliver(DRIVER, 1, ONE)]


def test_an_illegal_transition_tells_the_story() -> None:
    tables = Tables()
    task = TaskRecord(make_task(1), DRIVER, None)
    tables.move(task, "ready")
    tables.tell(task, "attempt 1 was lost")
    with pytest.raises(InvalidTransition) as caught:
        tables.move(task, "unblocked")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.state, error.cause, error.story) == ("ready", "unblocked", ("attempt 1 was lost", "ready"))
    assert "task 1" in str(error)


def test_the_last_runs_are_remembered_for_a_timeline() -> None:
    script = Script(1)
    script.submit(1)
    script.tell(1, TaskDone(1, ONE, began=5.0, seconds=0.5))
    (finished,) = script.state.runs(0.0)
    assert (finished.name, finished.worker, finished.began, finished.seconds) == ("task 1", 1, 5.0, 0.5)


def test_tasks_end_when_no_worker_can_be_started_for_them() -> None:
    script = Script()
    script.tell(DRIVER, HostJoined(1, "host-1", (("CPU", 2.0),), 2, 1000))
    script.submit(1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    delivered: list[Deliver] = []
    rounds = 0
    while not delivered:
        rounds += 1
        assert rounds <= MOST_FAILED_STARTS
        timers: list[SetTimer] = []
        for worker in tuple(script.state._tables.workers):
            commands = script.tell(DRIVER, WorkerLost(worker, "exited with 1"))
            delivered += [command for command in commands if type(command) is Deliver]
            timers += [command for command in commands if type(command) is SetTimer]
        assert timers
        script.now += timers[-1].seconds
        script.tell(DRIVER, TimerFired(timers[-1].key))
    assert rounds == MOST_FAILED_STARTS
    [end] = delivered
    assert end.outcome == Failed(b"", "WorkerStartError", "task 1", (), (("reason", "exited with 1"),))


def test_a_task_that_comes_after_the_last_start_waits_for_another() -> None:
    script = Script()
    script.tell(DRIVER, HostJoined(1, "host-1", (("CPU", 2.0),), 2, 1000))
    for _ in range(MOST_FAILED_STARTS - 1):
        for worker in tuple(script.state._tables.workers):
            script.tell(DRIVER, WorkerLost(worker, "exited with 1"))
        script.now += LONGEST_BACKOFF
        script.tell(DRIVER, TimerFired(("start", 1)))
    one, other = script.state._tables.workers
    script.now += 1.0
    script.submit(1)
    for worker in (one, other):
        script.tell(DRIVER, WorkerLost(worker, "exited with 1"))
    assert script.state.stats().tasks == {"ready": 1}
    script.now += LONGEST_BACKOFF
    script.tell(DRIVER, TimerFired(("start", 1)))
    script.tell(DRIVER, WorkerLost(next(iter(script.state._tables.workers)), "exited with 1"))
    assert script.state.stats().tasks == {}


def test_a_worker_that_joins_makes_up_for_those_that_could_not_be_started() -> None:
    script = Script()
    script.tell(DRIVER, HostJoined(1, "host-1", (("CPU", 1.0),), 1, 1000))
    script.submit(1)
    for _ in range(MOST_FAILED_STARTS - 1):
        [worker] = script.state._tables.workers
        script.tell(DRIVER, WorkerLost(worker, "exited with 1"))
        script.now += LONGEST_BACKOFF
        script.tell(DRIVER, TimerFired(("start", 1)))
    [worker] = script.state._tables.workers
    assert script.tell(DRIVER, WorkerJoined(worker)) == [run(worker, 1, blob=b"blob")]
    [team] = script.state._tables.hosts[1].teams.values()
    assert team.failed_starts == 0
