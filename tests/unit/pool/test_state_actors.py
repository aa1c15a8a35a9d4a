"""The life of actors and the order of their calls: exactly which commands follow which events."""

from __future__ import annotations

from fray.runtime.pool.machine.placement import MOST_FAILED_STARTS
from fray.runtime.pool.machine.slots import IDLE_SECONDS
from fray.runtime.pool.messages.commands import (
    AnswerActor,
    CancelTask,
    Command,
    CreateActor,
    Deliver,
    EndActor,
    RunTask,
    SetTimer,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    ActorEnded,
    ActorReady,
    ActorSubmitted,
    ClientLost,
    KillActor,
    ObjectsWanted,
    RefsReleased,
    TaskBlocked,
    TaskDone,
    TaskSubmitted,
    TaskUnblocked,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Profile
from tests.unit.pool.state_script import ONE, A, Script, make_actor, make_call


def call(script: Script, task_id: int, **more: object) -> list[Command]:
    return script.tell(DRIVER, TaskSubmitted(make_call(task_id, **more)))  # type: ignore[arg-type]


def sent(
    worker: int, task_id: int, *, attempt: int = 1, values: tuple[object, ...] = (), **more: object
) -> RunTask:
    spec = make_call(task_id, **more)  # type: ignore[arg-type]
    return RunTask(worker, spec, b"", values, False, attempt, 0, DRIVER)  # type: ignore[arg-type]


def died(reason: str, *story: str) -> Failed:
    return Failed(b"", "ActorDiedError", "Counter", story, (("reason", reason),))


OF_ITS_CLASS = Profile(actors=b"c")
IDLE = SetTimer(IDLE_SECONDS, ("idle", 2))
KILLED = [EndActor(2, A, 1, False), StopWorker(2, True, "its actor has ended")]


def start(script: Script, **more: object) -> None:
    """Have an actor live in worker 2: worker 1 is for tasks."""
    spec = make_actor(A, **more)
    begin = [AnswerActor(DRIVER, A, A), StartWorker(1, 2, OF_ITS_CLASS)]
    assert script.tell(DRIVER, ActorSubmitted(spec, b"blob")) == begin
    assert script.tell(DRIVER, WorkerJoined(2)) == [CreateActor(2, spec, b"blob", (), 1)]
    assert script.tell(2, ActorReady(A, 1)) == []


def test_calls_wait_for_the_constructor_and_go_in_order() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))
    assert call(script, 1) == call(script, 2) == []
    assert script.tell(2, ActorReady(A, 1)) == [sent(2, 1), sent(2, 2)]
    assert call(script, 3) == [sent(2, 3)]
    assert script.tell(DRIVER, ObjectsWanted((1,))) == []
    assert script.tell(2, TaskDone(1, ONE)) == [Deliver(DRIVER, 1, ONE)]


def test_a_call_that_waits_holds_back_its_callers_only() -> None:
    script = Script(1)
    start(script)
    script.submit(7)
    assert call(script, 1, deps=(7,)) == call(script, 2) == []
    assert call(script, 3, parent=9) == [sent(2, 3, parent=9)]
    assert script.tell(1, TaskDone(7, ONE)) == [sent(2, 1, deps=(7,), values=(ONE,)), sent(2, 2)]


def test_an_actor_ends_when_nobody_refers_to_it_and_its_calls_are_done() -> None:
    script = Script(1)
    start(script)
    call(script, 1)
    assert script.tell(DRIVER, RefsReleased((A,))) == []
    assert script.tell(2, TaskDone(1, ONE)) == [EndActor(2, A, 1, True), IDLE]
    assert script.tell(2, ActorEnded(A, 1)) == []
    script.tell(DRIVER, RefsReleased((1,)))
    assert script.state.stats().objects == 0


def test_a_named_actor_lives_on_and_is_found_by_its_name() -> None:
    script = Script(1)
    start(script, name="stats")
    assert script.tell(DRIVER, RefsReleased((A,))) == []
    again = make_actor(A + 1, name="stats", get_if_exists=True)
    assert script.tell(DRIVER, ActorSubmitted(again, b"blob")) == [AnswerActor(DRIVER, A + 1, A)]
    taken = AnswerActor(DRIVER, A + 2, A + 2, Failed(b"", "ActorExistsError", "stats"))
    assert script.tell(DRIVER, ActorSubmitted(make_actor(A + 2, name="stats"), b"blob")) == [taken]
    assert script.tell(DRIVER, KillActor(A)) == KILLED
    free = script.tell(DRIVER, ActorSubmitted(make_actor(A + 3, name="stats"), b"blob"))
    assert free[0] == AnswerActor(DRIVER, A + 3, A + 3)


def test_a_name_can_be_looked_up_without_a_class() -> None:
    script = Script(1)
    look = make_actor(A, name="stats", get_if_exists=True)._replace(function=b"")
    absent = AnswerActor(DRIVER, A, A, Failed(b"", "ActorNotFoundError", "stats"))
    assert script.tell(DRIVER, ActorSubmitted(look, b"")) == [absent]
    script.tell(DRIVER, ActorSubmitted(make_actor(A + 1, name="other"), b"blob"))
    known = absent._replace(error=Failed(b"", "ActorNotFoundError", "stats", ("other",)))
    assert script.tell(DRIVER, ActorSubmitted(look, b"")) == [known]
    script.tell(DRIVER, ActorSubmitted(make_actor(A + 2, name="stats"), b"blob"))
    assert script.tell(DRIVER, ActorSubmitted(look, b"")) == [AnswerActor(DRIVER, A, A + 2)]


def test_the_time_of_a_call_begins_when_it_is_sent_to_its_actor() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))
    script.tell(2, ActorReady(A, 1))
    limited = make_call(1)._replace(timeout=5.0)
    assert SetTimer(5.0, ("timeout", 1)) in script.tell(DRIVER, TaskSubmitted(limited))
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.now += 5
    ended = script.tell(DRIVER, TimerFired(("timeout", 1)))
    assert CancelTask(2, 1) in ended
    (told,) = (each for each in ended if isinstance(each, Deliver))
    assert isinstance(told.outcome, Failed)
    assert told.outcome.kind == "TaskTimeoutError"
    assert script.tell(DRIVER, TaskSubmitted(make_call(3))) == [sent(2, 3)]


def test_a_constructor_that_raises_fails_all_calls_with_its_exception() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    raised = Failed(b"raised")
    assert script.tell(2, ActorEnded(A, 1, raised)) == [IDLE, Deliver(DRIVER, 1, raised)]
    call(script, 2)
    assert script.tell(DRIVER, ObjectsWanted((2,))) == [Deliver(DRIVER, 2, raised)]


def test_a_call_to_an_actor_that_was_killed_or_never_was_fails() -> None:
    script = Script(1)
    start(script)
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    killed = died("it was killed")
    assert script.tell(DRIVER, KillActor(A)) == [*KILLED, Deliver(DRIVER, 1, killed)]
    call(script, 2)
    assert script.tell(DRIVER, ObjectsWanted((2,))) == [Deliver(DRIVER, 2, killed)]
    call(script, 3, actor=777)
    (answer,) = script.tell(DRIVER, ObjectsWanted((3,)))
    assert isinstance(answer, Deliver)
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.kind == "ActorDiedError"


def test_an_actor_with_cpus_has_a_process_and_holds_them() -> None:
    script = Script(2)
    spec = make_actor(A, shape=(("CPU", 2.0),))
    alone = Profile(actors=A.to_bytes(8, "big"), threads=2)
    answer = script.tell(DRIVER, ActorSubmitted(spec, b"blob"))
    assert answer == [AnswerActor(DRIVER, A, A), StartWorker(1, 3, alone)]
    assert script.tell(DRIVER, WorkerJoined(3)) == [CreateActor(3, spec, b"blob", (), 1)]
    script.tell(3, ActorReady(A, 1))
    assert script.submit(1) == []
    # While a thread of its own waits, the task has its CPUs.
    (run,) = script.tell(3, TaskBlocked(A))
    assert isinstance(run, RunTask)
    assert script.tell(3, TaskUnblocked(A)) == []
    assert script.tell(run.worker, TaskDone(1, ONE)) == []
    assert script.submit(2) == []
    end = [EndActor(3, A, 1, True), StopWorker(3, False, "its actor has ended")]
    assert script.tell(DRIVER, RefsReleased((A,))) == end
    # What it held is free once the process has gone, not before.
    (run,) = script.tell(DRIVER, WorkerLost(3, "ended", expected=True))
    assert isinstance(run, RunTask)


def test_an_actor_is_restarted_as_often_as_it_may_and_calls_are_tried_again() -> None:
    script = Script(1)
    start(script, max_restarts=1, max_task_retries=1)
    spec = make_actor(A, max_restarts=1, max_task_retries=1)
    call(script, 1)
    call(script, 2)
    script.tell(DRIVER, ObjectsWanted((1, 2)))
    script.now += 5
    assert script.tell(DRIVER, WorkerLost(2, "died")) == [StartWorker(1, 3, OF_ITS_CLASS)]
    script.tell(DRIVER, ClientLost(2))
    assert script.tell(DRIVER, WorkerJoined(3)) == [CreateActor(3, spec, b"blob", (), 2)]
    assert script.tell(3, ActorReady(A, 1)) == []  # a word about an incarnation that is gone
    assert script.tell(3, ActorReady(A, 2)) == [sent(3, 1, attempt=2), sent(3, 2, attempt=2)]
    story = tuple(f"incarnation {n} was lost: worker {n + 1} on host-1 died" for n in (1, 2))
    script.now += 5
    commands = script.tell(DRIVER, WorkerLost(3, "died"))
    dead = died("its worker died", *story)
    assert commands[:2] == [Deliver(DRIVER, 1, dead), Deliver(DRIVER, 2, dead)]


def test_an_actor_that_says_it_fails_is_made_anew_in_its_process_as_often_as_it_may() -> None:
    script = Script(1)
    start(script, max_restarts=1)
    spec = make_actor(A, max_restarts=1)
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    failed = ActorEnded(A, 1, Failed(b"error", name="counter"), "BufferError: full")
    lost, *more = script.tell(2, failed)
    first = "incarnation 1: it failed: BufferError: full"
    reason = (("reason", "it failed: BufferError: full, and it was restarted"),)
    assert lost == Deliver(DRIVER, 1, Failed(b"error", "ActorDiedError", "Counter", (first,), reason))
    assert CreateActor(2, spec, b"", (), 2) in more
    assert script.tell(2, failed) == []  # a word about an incarnation that is gone
    script.tell(2, ActorReady(A, 2))
    script.tell(2, ActorEnded(A, 2, failed.outcome, failed.why))
    call(script, 3)
    (answer,) = script.tell(DRIVER, ObjectsWanted((3,)))
    assert (answer.outcome.kind, answer.outcome.data) == ("ActorDiedError", b"error")


def test_a_call_says_itself_how_often_it_is_tried_again() -> None:
    script = Script(1)
    start(script, max_restarts=-1, max_task_retries=1)
    for spec in (make_call(1)._replace(max_task_retries=0), make_call(2)):
        script.tell(DRIVER, TaskSubmitted(spec))
    script.tell(DRIVER, ObjectsWanted((1, 2)))
    script.now += 5
    (failed, _) = script.tell(DRIVER, WorkerLost(2, "died"))
    line = "incarnation 1 was lost: worker 2 on host-1 died"
    assert failed == Deliver(DRIVER, 1, died("its worker died, and it was restarted", line))
    script.tell(DRIVER, WorkerJoined(3))
    assert script.tell(3, ActorReady(A, 2)) == [sent(3, 2, attempt=2)]


def test_a_call_under_way_fails_where_its_actor_is_restarted_without_retries() -> None:
    script = Script(1)
    start(script, max_restarts=-1)
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.now += 5
    (failed, _) = script.tell(DRIVER, WorkerLost(2, "died"))
    line = "incarnation 1 was lost: worker 2 on host-1 died"
    assert failed == Deliver(DRIVER, 1, died("its worker died, and it was restarted", line))
    assert call(script, 2) == []


def test_an_actor_that_no_host_can_take_is_refused() -> None:
    script = Script(1)
    spec = make_actor(A, name="big", shape=(("GPU", 1.0),))
    details = (("wants", "GPU: 1"), ("offered", "CPU: 1"))
    refused = Failed(b"", "UnschedulableError", "big", (), details)
    assert script.tell(DRIVER, ActorSubmitted(spec, b"blob")) == [AnswerActor(DRIVER, A, A, refused)]
    assert script.state.stats().objects == 0


def test_the_drivers_host_binds_only_where_the_pool_has_one() -> None:
    spec = make_actor(A, shape=(("head_node", 0.0001),))
    without = Script(1)
    assert StartWorker in map(type, without.tell(DRIVER, ActorSubmitted(spec, b"blob")))
    both = Script(1)
    both.join_host(2, 1, head_node=1.0)
    hosts = [
        each.host for each in both.tell(DRIVER, ActorSubmitted(spec, b"blob")) if type(each) is StartWorker
    ]
    assert hosts == [2]


def test_actors_of_a_class_share_processes_once_there_are_as_many_as_workers() -> None:
    script = Script(2)
    begun = [
        command
        for number in range(4)
        for command in script.tell(DRIVER, ActorSubmitted(make_actor(A + number), b"blob"))
        if isinstance(command, StartWorker)
    ]
    assert begun == [StartWorker(1, 3, OF_ITS_CLASS), StartWorker(1, 4, OF_ITS_CLASS)]
    made = [each for worker in (3, 4) for each in script.tell(DRIVER, WorkerJoined(worker))]
    places = [(each.worker, each.spec.id) for each in made if isinstance(each, CreateActor)]
    assert places == [(3, A), (3, A + 2), (4, A + 1), (4, A + 3)]
    # The processes for tasks are free of actors; another class has processes of its own.
    other = make_actor(A + 4)._replace(function=b"other")
    assert script.tell(DRIVER, ActorSubmitted(other, b"x"))[1:] == [
        StartWorker(1, 5, Profile(actors=b"other"))
    ]
    # An actor that is killed leaves others of its process alone.
    assert script.tell(DRIVER, KillActor(A)) == [EndActor(3, A, 1, False)]


def test_an_isolated_actor_has_a_process_to_itself() -> None:
    script = Script(1)
    start(script)
    spec = make_actor(A + 1, isolated=True)
    own = Profile(actors=(A + 1).to_bytes(8, "big"))
    assert script.tell(DRIVER, ActorSubmitted(spec, b"blob"))[1:] == [StartWorker(1, 3, own)]


def test_an_actor_outlives_a_process_that_never_came_to_construct_it() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    worker = 2
    for _ in range(MOST_FAILED_STARTS - 1):
        (timer,) = script.tell(DRIVER, WorkerLost(worker, "can't be started"))
        script.tell(DRIVER, ClientLost(worker))
        assert isinstance(timer, SetTimer)
        script.now += timer.seconds
        (begin,) = script.tell(DRIVER, TimerFired(timer.key))
        worker += 1
        assert begin == StartWorker(1, worker, OF_ITS_CLASS)
    told = script.tell(DRIVER, WorkerLost(worker, "can't be started"))
    (answer,) = [each for each in told if isinstance(each, Deliver)]
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.details == (("reason", "its worker can't be started"),)
