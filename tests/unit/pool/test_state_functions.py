"""What tasks leave behind: functions are kept for the next one, within bounds; timers and demands go."""

from __future__ import annotations

from fray.runtime.pool.machine import functions
from fray.runtime.pool.messages.commands import DropTimer, ForgetFunctions, StopWorker
from fray.runtime.pool.messages.events import (
    RefsReleased,
    TaskCancelled,
    TaskDone,
    TaskSubmitted,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, PLAIN, Profile
from tests.unit.pool.state_script import ONE, Script, make_task


def run_one(script: Script, task_id: int, function: bytes, size: int = 10) -> list[object]:
    script.tell(DRIVER, TaskSubmitted(make_task(task_id, function=function), bytes(size)))
    return [each for each in script.tell(1, TaskDone(task_id, ONE)) if isinstance(each, ForgetFunctions)]


def test_a_function_with_references_is_forgotten_with_its_last_use() -> None:
    script = Script(1)
    plain, referring = b"p" * 16, b"r" * 17
    assert run_one(script, 1, plain) == []
    assert run_one(script, 2, referring) == [ForgetFunctions(1, (referring,))]
    assert set(script.state._tables.functions) == {plain}


def test_unused_functions_are_bounded_by_their_bytes() -> None:
    script = Script(1)
    half = functions.UNUSED_BYTES // 2
    assert run_one(script, 1, b"1" * 16, half) == []
    assert run_one(script, 2, b"2" * 16, half) == []
    assert run_one(script, 1 << 20, b"1" * 16, half) == []  # used again: it is the newest now
    assert run_one(script, 3, b"3" * 16, 1) == [ForgetFunctions(1, (b"2" * 16,))]
    assert run_one(script, 4, b"4" * 16, 3 * half) == [
        ForgetFunctions(1, (name * 16,)) for name in (b"1", b"3", b"4")
    ]
    assert not script.state._tables.unused_bytes


def test_a_timer_goes_with_its_task() -> None:
    script = Script(1)
    script.submit(1, timeout=3600.0)
    assert DropTimer(("timeout", 1)) in script.tell(1, TaskDone(1, ONE))


def test_the_team_of_a_profile_goes_with_its_last_process() -> None:
    script = Script(1)
    profile = Profile(env=(("RUN", "1"),))
    script.submit(1, profile=profile)
    script.tell(DRIVER, WorkerJoined(2))
    script.tell(2, TaskDone(1, ONE))
    script.now += 10.0
    assert script.tell(DRIVER, TimerFired(("idle", 2))) == [StopWorker(2, False, "it had no work")]
    script.tell(DRIVER, WorkerLost(2, "exited", expected=True))
    assert set(script.state._tables.hosts[1].teams) == {PLAIN}


def test_the_demand_of_a_profile_goes_with_its_last_task() -> None:
    script = Script(1)
    demands = script.state._tables.demands
    for number in range(1, 4):
        script.submit(number, profile=Profile(env=(("RUN", str(number)),)))
    assert len(demands) == 3
    for number in range(1, 4):
        script.tell(DRIVER, TaskCancelled(number))
        script.tell(DRIVER, RefsReleased((number,)))
    assert not demands
    script.submit(4)
    assert [profile for profile, _ in demands] == [PLAIN]
