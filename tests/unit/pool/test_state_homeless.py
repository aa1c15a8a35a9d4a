"""What only a lost host could run: it waits for a while, and then somebody is told."""

from __future__ import annotations

import pytest

from fray.runtime.pool.machine.resources import HOMELESS_SECONDS
from fray.runtime.pool.messages.commands import Command, Deliver, RunTask, SetTimer
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    HostJoined,
    HostLost,
    ObjectsWanted,
    TaskDone,
    TaskSubmitted,
    TimerFired,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, Failed
from tests.unit.pool.state_script import ONE, Script, make_actor, make_task

LICENSED = (("CPU", 1.0), ("licence", 1.0))
WIDE = (("CPU", 4.0),)
ACTOR = 50


def script_with_licence() -> Script:
    script = Script(2)
    script.join_host(2, 4, licence=1.0)
    return script


def lose_host(script: Script) -> list[Command]:
    return script.tell(DRIVER, HostLost(2, "unplugged"))


def fire(script: Script) -> list[Command]:
    script.now += HOMELESS_SECONDS
    return script.tell(DRIVER, TimerFired(("homeless", 0)))


@pytest.mark.parametrize("shape", [LICENSED, WIDE])
def test_a_task_that_lost_its_only_host_waits_and_then_fails(shape: tuple[tuple[str, float], ...]) -> None:
    script = script_with_licence()
    script.submit(1, shape=shape)
    script.submit(2, shape=shape)
    script.tell(DRIVER, ObjectsWanted((1, 2)))
    assert SetTimer(HOMELESS_SECONDS, ("homeless", 0)) in lose_host(script)
    [told] = script.state.homeless
    assert "CPU" in told
    ended = [command for command in fire(script) if type(command) is Deliver]
    assert [command.id for command in ended] == [1, 2]
    for command in ended:
        assert isinstance(command.outcome, Failed)
        assert command.outcome.kind == "UnschedulableError"
    assert script.state.homeless == ()
    assert script.submit(3) != []


def test_an_actor_that_lost_its_only_host_waits_and_then_dies() -> None:
    script = script_with_licence()
    script.tell(DRIVER, ActorSubmitted(make_actor(ACTOR, shape=(("licence", 1.0),), max_restarts=-1), b"c"))
    lose_host(script)
    call = make_task(1, function=b"", shape=(), actor=ACTOR, method="add")
    script.tell(DRIVER, TaskSubmitted(call, b"", True))
    [end] = [command for command in fire(script) if type(command) is Deliver]
    assert isinstance(end.outcome, Failed)
    assert end.outcome.kind == "UnschedulableError"


def test_a_host_that_comes_in_time_runs_it() -> None:
    script = script_with_licence()
    script.submit(1, shape=LICENSED)
    lose_host(script)
    script.now += HOMELESS_SECONDS / 2
    commands = script.tell(DRIVER, HostJoined(3, "host-3", (*WIDE, ("licence", 1.0)), 1, 1000))
    [run] = script.tell(DRIVER, WorkerJoined(commands[0].worker))  # type: ignore[union-attr]
    assert isinstance(run, RunTask)
    # Lost again: the time counts anew, whatever the timer of the first loss says.
    script.tell(DRIVER, HostLost(3, "unplugged"))
    script.now += HOMELESS_SECONDS / 2
    assert script.tell(DRIVER, TimerFired(("homeless", 0))) == []
    assert script.state.stats().tasks == {"ready": 1}


def test_what_gets_its_arguments_later_is_told_as_well() -> None:
    script = script_with_licence()
    script.submit(1)
    script.submit(2, deps=(1,), holds=(1,), shape=LICENSED)
    assert lose_host(script) == []
    commands = script.tell(1, TaskDone(1, ONE, seconds=1.0))
    assert SetTimer(HOMELESS_SECONDS, ("homeless", 0)) in commands
