"""The life of actors and the order of their calls: exactly which commands follow which events."""

from __future__ import annotations

from fray.runtime.pool.messages import (
    DRIVER,
    ActorEnded,
    ActorReady,
    ActorSubmitted,
    AnswerActor,
    ClientLost,
    Command,
    CreateActor,
    Deliver,
    EndActor,
    Failed,
    KillActor,
    ObjectsWanted,
    Profile,
    RefsReleased,
    RunTask,
    StartWorker,
    StopWorker,
    TaskDone,
    TaskSpec,
    TaskSubmitted,
    WorkerJoined,
    WorkerLost,
)
from tests.unit.pool.state_script import ONE, Script, make_actor

A = 500


def make_call(task_id: int, *, deps: tuple[int, ...] = (), parent: int = 0, actor: int = A) -> TaskSpec:
    return TaskSpec(
        task_id,
        b"",
        b"args",
        "Counter.add",
        deps=deps,
        holds=deps,
        parent=parent,
        shape=(),
        retries=0,
        actor=actor,
        method="add",
    )


def call(script: Script, task_id: int, **more: object) -> list[Command]:
    return script.tell(DRIVER, TaskSubmitted(make_call(task_id, **more)))  # type: ignore[arg-type]


def sent(
    worker: int, task_id: int, *, attempt: int = 1, values: tuple[object, ...] = (), **more: object
) -> RunTask:
    spec = make_call(task_id, **more)  # type: ignore[arg-type]
    return RunTask(worker, spec, b"", values, False, attempt, 0, DRIVER)  # type: ignore[arg-type]


def died(reason: str, *story: str) -> Failed:
    return Failed(b"", "ActorDiedError", "Counter", story, (("reason", reason),))


def start(script: Script, **more: object) -> None:
    spec = make_actor(A, **more)
    create = CreateActor(1, spec, b"blob", (), 1)
    assert script.tell(DRIVER, ActorSubmitted(spec, b"blob")) == [AnswerActor(DRIVER, A, A), create]
    assert script.tell(1, ActorReady(A, 1)) == []


def test_calls_wait_for_the_constructor_and_go_in_order() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    assert call(script, 1) == call(script, 2) == []
    assert script.tell(1, ActorReady(A, 1)) == [sent(1, 1), sent(1, 2)]
    assert call(script, 3) == [sent(1, 3)]
    assert script.tell(DRIVER, ObjectsWanted((1,))) == []
    assert script.tell(1, TaskDone(1, ONE)) == [Deliver(DRIVER, 1, ONE)]


def test_a_call_that_waits_holds_back_its_callers_only() -> None:
    script = Script(1)
    start(script)
    script.submit(7)
    assert call(script, 1, deps=(7,)) == call(script, 2) == []
    assert call(script, 3, parent=9) == [sent(1, 3, parent=9)]
    assert script.tell(1, TaskDone(7, ONE)) == [sent(1, 1, deps=(7,), values=(ONE,)), sent(1, 2)]


def test_an_actor_ends_when_nobody_refers_to_it_and_its_calls_are_done() -> None:
    script = Script(1)
    start(script)
    call(script, 1)
    assert script.tell(DRIVER, RefsReleased((A,))) == []
    assert script.tell(1, TaskDone(1, ONE)) == [EndActor(1, A, 1, True)]
    assert script.tell(1, ActorEnded(A, 1)) == []
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
    assert script.tell(DRIVER, KillActor(A)) == [EndActor(1, A, 1, False)]
    free = script.tell(DRIVER, ActorSubmitted(make_actor(A + 3, name="stats"), b"blob"))
    assert free[0] == AnswerActor(DRIVER, A + 3, A + 3)


def test_a_constructor_that_raises_fails_all_calls_with_its_exception() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(A), b"blob"))
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    raised = Failed(b"raised")
    assert script.tell(1, ActorEnded(A, 1, raised)) == [Deliver(DRIVER, 1, raised)]
    call(script, 2)
    assert script.tell(DRIVER, ObjectsWanted((2,))) == [Deliver(DRIVER, 2, raised)]


def test_a_call_to_an_actor_that_was_killed_or_never_was_fails() -> None:
    script = Script(1)
    start(script)
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    killed = died("it was killed")
    assert script.tell(DRIVER, KillActor(A)) == [EndActor(1, A, 1, False), Deliver(DRIVER, 1, killed)]
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
    alone = Profile((), 0, A)
    answer = script.tell(DRIVER, ActorSubmitted(spec, b"blob"))
    assert answer == [AnswerActor(DRIVER, A, A), StartWorker(1, 3, alone)]
    assert script.tell(DRIVER, WorkerJoined(3)) == [CreateActor(3, spec, b"blob", (), 1)]
    script.tell(3, ActorReady(A, 1))
    assert script.submit(1) == []
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
    assert script.tell(DRIVER, WorkerLost(1, "died")) == [StartWorker(1, 2, Profile())]
    script.tell(DRIVER, ClientLost(1))
    assert script.tell(DRIVER, WorkerJoined(2)) == [CreateActor(2, spec, b"blob", (), 2)]
    assert script.tell(2, ActorReady(A, 1)) == []  # a word about an incarnation that is gone
    assert script.tell(2, ActorReady(A, 2)) == [sent(2, 1, attempt=2), sent(2, 2, attempt=2)]
    story = tuple(f"incarnation {n} was lost: worker {n} on host-1 died" for n in (1, 2))
    script.now += 5
    commands = script.tell(DRIVER, WorkerLost(2, "died"))
    dead = died("its worker died", *story)
    assert commands[:2] == [Deliver(DRIVER, 1, dead), Deliver(DRIVER, 2, dead)]


def test_a_call_under_way_fails_where_its_actor_is_restarted_without_retries() -> None:
    script = Script(1)
    start(script, max_restarts=-1)
    call(script, 1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    script.now += 5
    (failed, _) = script.tell(DRIVER, WorkerLost(1, "died"))
    line = "incarnation 1 was lost: worker 1 on host-1 died"
    assert failed == Deliver(DRIVER, 1, died("its worker died, and it was restarted", line))
    assert call(script, 2) == []


def test_an_actor_that_no_host_can_take_is_refused() -> None:
    script = Script(1)
    spec = make_actor(A, name="big", shape=(("GPU", 1.0),))
    details = (("wants", "GPU: 1"), ("offered", "CPU: 1"))
    refused = Failed(b"", "UnschedulableError", "big", (), details)
    assert script.tell(DRIVER, ActorSubmitted(spec, b"blob")) == [AnswerActor(DRIVER, A, A, refused)]
    assert script.state.stats().objects == 0
