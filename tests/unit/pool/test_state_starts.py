"""Processes that end as soon as they are started hold up nobody but those who need such processes."""

from __future__ import annotations

from typing import Any

from fray.runtime.pool.machine.workers import MOST_FAILED_STARTS
from fray.runtime.pool.messages.commands import Command, SetTimer, StartWorker
from fray.runtime.pool.messages.events import ActorSubmitted, TaskDone, TimerFired, WorkerJoined, WorkerLost
from fray.runtime.pool.messages.specs import DRIVER, Profile
from tests.unit.pool.state_script import ONE, Script, make_actor

BROKEN = Profile(env=(("LD_PRELOAD", "nothing.so"),))
SOUND = Profile(env=(("HOME", "/tmp"),))
A, B = 50, 51


def started(commands: list[Command]) -> list[StartWorker]:
    return [command for command in commands if type(command) is StartWorker]


def lose(script: Script, worker: int) -> SetTimer:
    [timer] = [each for each in script.tell(DRIVER, WorkerLost(worker, "exited with 1")) if is_timer(each)]
    assert isinstance(timer, SetTimer)
    return timer


def is_timer(command: Any) -> bool:
    return type(command) is SetTimer


def test_a_profile_whose_processes_end_at_once_delays_no_other_one() -> None:
    script = Script(4)
    [broken] = started(script.submit(10, profile=BROKEN))
    timer = lose(script, broken.worker)
    assert [start.profile for start in started(script.submit(11, profile=SOUND))] == [SOUND]
    assert script.submit(12, profile=BROKEN) == []
    script.now += 10
    [plain] = started(script.tell(DRIVER, WorkerLost(1, "killed by signal 9 (SIGKILL)")))
    assert plain.profile == Profile()
    # Both tasks that wait for it get one, when its pause is over.
    both = started(script.tell(DRIVER, TimerFired(timer.key)))
    assert [start.profile for start in both] == [BROKEN, BROKEN]


def test_plain_workers_that_end_at_once_delay_no_profile() -> None:
    script = Script(2)
    timer = lose(script, 1)
    assert [start.profile for start in started(script.submit(10, profile=SOUND))] == [SOUND]
    assert [start.profile for start in started(script.tell(DRIVER, TimerFired(timer.key)))] == []
    script.now += timer.seconds
    assert [start.profile for start in started(script.tell(DRIVER, TimerFired(timer.key)))] == [Profile()]


def test_the_pauses_of_one_profile_grow_whatever_others_do() -> None:
    script = Script(2)
    [start] = started(script.submit(10, profile=BROKEN, retries=0))
    pauses = []
    for task in range(11, 11 + MOST_FAILED_STARTS - 1):
        [sound] = started(script.submit(task, profile=SOUND))
        script.tell(DRIVER, WorkerJoined(sound.worker))
        script.tell(sound.worker, TaskDone(task, ONE, seconds=1.0))
        timer = lose(script, start.worker)
        pauses.append(timer.seconds)
        script.now += timer.seconds
        [start] = started(script.tell(DRIVER, TimerFired(timer.key)))
        script.tell(DRIVER, WorkerLost(sound.worker, "killed by signal 9 (SIGKILL)"))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]


def test_an_actor_whose_process_ends_at_once_holds_up_no_other_one() -> None:
    script = Script(2)
    shape = (("CPU", 1.0),)
    [first] = started(script.tell(DRIVER, ActorSubmitted(make_actor(A, shape=shape, max_restarts=-1), b"c")))
    timer = lose(script, first.worker)
    [second] = started(script.tell(DRIVER, ActorSubmitted(make_actor(B, shape=shape), b"c")))
    assert second.profile.actors == B.to_bytes(8, "big")
    script.now += timer.seconds
    [again] = started(script.tell(DRIVER, TimerFired(timer.key)))
    assert again.profile.actors == A.to_bytes(8, "big")
