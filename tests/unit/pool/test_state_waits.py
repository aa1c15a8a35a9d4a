"""What waits and why: it can be asked for, and a pool that stands still says it by itself, once."""

from __future__ import annotations

import pytest

from fray.runtime.pool.messages.commands import Deliver, RunTask, SetTimer, StartWorker
from fray.runtime.pool.messages.events import (
    ActorReady,
    ActorSubmitted,
    HostJoined,
    ObjectsWanted,
    TaskBlocked,
    TaskSubmitted,
    TaskUnblocked,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed, Shape, TaskSpec
from fray.runtime.pool.state import STALL_SECONDS, PoolState
from tests.unit.pool.state_script import Script, make_actor

TPU: Shape = (("CPU", 1.0), ("TPU", 4.0))
ACTOR = 50


def open_script(*allowed: Shape) -> Script:
    """Return a script of a pool that hosts with `allowed` may join; without any: whatever hosts."""
    script = Script()
    script.state = PoolState(allowed or None)
    script.join_host(1, 1)
    return script


def join_tpu(script: Script) -> list[object]:
    """Let a host with a TPU join; return what is sent when its processes have joined, but timers."""
    joined = script.tell(DRIVER, HostJoined(2, "host-2", (("CPU", 1.0), ("TPU", 4.0)), 1, 1000))
    sent: list[object] = []
    for begin in joined:
        assert isinstance(begin, StartWorker)
        sent += script.tell(DRIVER, WorkerJoined(begin.worker))
    return [command for command in sent if not isinstance(command, SetTimer)]


@pytest.mark.parametrize("allowed", [(), ((("CPU", 8.0), ("TPU", 4.0)),)])
def test_a_task_waits_for_a_host_that_may_join(allowed: tuple[Shape, ...]) -> None:
    script = open_script(*allowed)
    begun = script.submit(1, shape=TPU)
    assert [type(command) for command in begun] == ([] if allowed else [SetTimer])
    [line] = script.state.stats().waits
    needs = "nobody waits for task 1, which needs CPU: 1, TPU: 4"
    assert line == f"{needs}: no host has that; one that has it may still join"
    (run,) = join_tpu(script)
    assert isinstance(run, RunTask)
    assert script.state.homeless == ()


def test_what_no_host_may_have_is_refused_at_once() -> None:
    script = open_script((("CPU", 8.0),))
    script.submit(1, shape=TPU)
    (answer,) = script.tell(DRIVER, ObjectsWanted((1,)))
    assert isinstance(answer, Deliver)
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.kind == "UnschedulableError"


def call(task_id: int, actor: int = ACTOR, name: str = "A.m", parent: int = 0) -> TaskSubmitted:
    spec = TaskSpec(task_id, b"", b"()", name, shape=(), retries=0, actor=actor, method="m", parent=parent)
    return TaskSubmitted(spec)


def test_a_pool_that_stands_still_tells_who_waits_for_whom_once() -> None:
    script = Script(1)
    script.tell(DRIVER, ActorSubmitted(make_actor(ACTOR), b"blob"))
    script.tell(DRIVER, WorkerJoined(2))
    script.tell(2, ActorReady(ACTOR, 1))
    script.tell(DRIVER, call(1))
    assert script.state.find_stall(script.now + 1000) == ()  # the call runs
    script.now += 1
    # It waits for another call of its own actor, which is behind it.
    own = 2 << 40 | 1
    script.tell(2, call(own))
    script.tell(2, ObjectsWanted((own,)))
    script.tell(2, TaskBlocked(1))
    assert script.state.find_stall(script.now + STALL_SECONDS - 1) == ()
    assert script.state.find_stall(script.now + STALL_SECONDS) == (
        "nobody waits for A.m, which waits itself",
        "worker 2 (A.m) waits for A.m, which is behind other calls of its actor",
    )
    assert script.state.find_stall(script.now + 2 * STALL_SECONDS) == ()
    script.now += 100
    script.tell(2, TaskUnblocked(1))
    assert script.state.find_stall(script.now + STALL_SECONDS) == ()


def test_idle_actors_that_keep_all_cpus_are_named_with_what_helps() -> None:
    script = Script(2)
    for actor in (ACTOR, ACTOR + 1):
        script.tell(DRIVER, ActorSubmitted(make_actor(actor, shape=(("CPU", 1.0),)), b"blob"))
        worker = max(script.state._tables.workers)
        script.tell(DRIVER, WorkerJoined(worker))
        script.tell(worker, ActorReady(actor, 1))
    script.submit(1)
    script.tell(DRIVER, ObjectsWanted((1,)))
    helps = "Create them with less (num_cpus=0), end them, or give the pool more workers"
    keepers = "actors keep theirs while they live: 2 x Counter (CPU: 1)"
    assert script.state.find_stall(script.now + STALL_SECONDS) == (
        f"the driver waits for task 1, which needs CPU: 1: no host has that much free; {keepers}. {helps}",
    )
    script.now += 1
    script.tell(DRIVER, ActorSubmitted(make_actor(ACTOR + 2, name="third", shape=(("CPU", 1.0),)), b"blob"))
    script.tell(DRIVER, call(2, actor=ACTOR + 2))
    lines = script.state.find_stall(script.now + STALL_SECONDS)
    assert f"whose actor is pending (it needs CPU: 1: no host has that much free; {keepers}" in lines[1]


def test_actors_that_wait_for_each_other_are_named_as_a_circle() -> None:
    script = Script(1)
    for actor in (ACTOR, ACTOR + 1):
        script.tell(DRIVER, ActorSubmitted(make_actor(actor, isolated=True), b"blob"))
        worker = max(script.state._tables.workers)
        script.tell(DRIVER, WorkerJoined(worker))
        script.tell(worker, ActorReady(actor, 1))
    first, second = worker - 1, worker
    script.tell(DRIVER, call(1, name="A.ask"))
    there, back = first << 40 | 1, second << 40 | 1
    script.tell(first, call(there, ACTOR + 1, "B.ask", parent=1))
    script.tell(first, TaskBlocked(1))
    script.tell(second, call(back, name="A.answer", parent=there))
    script.tell(second, ObjectsWanted((back,)))
    script.tell(second, TaskBlocked(there))
    told = script.state.find_stall(script.now + STALL_SECONDS)
    circle = "A.answer, which is behind a call that led to it and waits: A.ask > B.ask > A.answer."
    assert any(f"worker {second} (B.ask) waits for {circle}" in line for line in told)
    # While the actor has room for the call, it only hasn't begun yet.
    script.tell(first, TaskUnblocked(1))
    assert not any(circle in line for line in script.state.stats().waits)
