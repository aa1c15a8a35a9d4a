"""How many hosts of workers a pool has work for, which may go, and what the head makes of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fray.errors import SettingError
from fray.runtime.pool.head import scaling
from fray.runtime.pool.head.dispatcher import Dispatcher
from fray.runtime.pool.head.scaling import PoolWorkload, ScaleLimits, keep_scale
from fray.runtime.pool.messages.commands import StartWorker
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    HostJoined,
    HostLeaving,
    HostLost,
    HostStaying,
    ObjectPut,
    TaskDone,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import DRIVER, Stored
from fray.runtime.pool.state import PoolState
from tests.unit.pool.state_script import ONE, Script, make_actor

ONE_CPU = (("CPU", 1.0),)
FOUR = (("CPU", 4.0), ("GPU", 1.0))


def waiting() -> Script:
    """Return a pool to which only a client's host belongs, which runs nothing."""
    script = Script()
    script.state = PoolState(None)
    script.tell(DRIVER, HostJoined(1, "client", (), 0, 1000))
    return script


@pytest.mark.parametrize(
    ("tasks", "shape", "offered", "expected"),
    [
        (0, {"CPU": 1.0}, FOUR, 0),
        (1, {"CPU": 1.0}, FOUR, 1),
        (9, {"CPU": 1.0}, FOUR, 3),
        (9, {"CPU": 1.0}, (), 9),
        (3, {"CPU": 3.0}, FOUR, 3),
        (3, {"CPU": 1.0, "GPU": 1.0}, FOUR, 3),
        (3, {"CPU": 0.1}, FOUR, 1),
        (3, {"CPU": 8.0}, FOUR, 0),
        (3, {"CPU": 1.0, "TPU": 4.0}, FOUR, 0),
        (3, {}, FOUR, 1),
    ],
)
def test_what_waits_is_counted_in_hosts_that_it_would_fill(
    tasks: int, shape: dict[str, float], offered: Any, expected: int
) -> None:
    script = waiting()
    for number in range(1, tasks + 1):
        script.submit(number, shape=tuple(sorted(shape.items())))
    assert script.state.count_wanted_hosts(offered) == expected


def test_kinds_that_wait_may_share_hosts_and_hosts_at_work_count() -> None:
    script = waiting()
    script.submit(1, shape=(("CPU", 2.0),))
    script.submit(2, shape=(("CPU", 2.0), ("memory", 0.0)))
    assert script.state.count_wanted_hosts(FOUR) == 1
    script.tell(DRIVER, ActorSubmitted(make_actor(9, shape=(("CPU", 3.0),)), b"blob"))
    assert script.state.count_wanted_hosts(FOUR) == 2


def test_a_host_with_work_or_an_actor_is_wanted_and_no_idle_one() -> None:
    script = Script(1, 1, 1)
    script.tell(DRIVER, ObjectPut(50, Stored(1, 40)))
    assert script.state.list_idle_hosts() == (3, 2, 1)
    script.submit(1)
    commands = script.tell(DRIVER, ActorSubmitted(make_actor(9), b"blob"))
    [home] = [each.host for each in commands if isinstance(each, StartWorker)]
    script.tell(DRIVER, WorkerJoined(4))
    busy = {1, home}
    assert script.state.list_idle_hosts() == tuple(host for host in (3, 2, 1) if host not in busy)
    assert script.state.count_wanted_hosts() == len(busy)
    script.tell(1, TaskDone(1, ONE))
    assert script.state.count_wanted_hosts() == 1
    assert script.state.count_worker_hosts() == 3
    script.tell(DRIVER, HostLeaving(3, "less work"))
    assert script.state.count_worker_hosts() == 2


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"FRAY_WORKERS_MAX": "4"}, ScaleLimits(0, 4, 60.0)),
        ({"FRAY_WORKERS_MIN": "2"}, ScaleLimits(2, None)),
        (
            {
                "FRAY_WORKERS_MAX": "4",
                "FRAY_WORKERS_MIN": "1",
                "FRAY_WORKERS_IDLE_SECONDS": "2.5",
                "FRAY_WORKERS_SHAPE": "memory=1024,CPU=2",
            },
            ScaleLimits(1, 4, 2.5, (("CPU", 2.0), ("memory", 1024.0))),
        ),
    ],
)
def test_limits_are_read_from_the_variables(environ: dict[str, str], expected: ScaleLimits | None) -> None:
    assert ScaleLimits.from_env(environ) == expected


@pytest.mark.parametrize("wrong", [{"FRAY_WORKERS_MAX": "x"}, {"FRAY_WORKERS_SHAPE": "CPU"}])
def test_wrong_limits_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        ScaleLimits.from_env({"FRAY_WORKERS_MAX": "1", **wrong})


BY_DEMAND = ScaleLimits(least=1, most=3, idle_seconds=0.0)
BY_USERS = ScaleLimits(least=1, most=None)


class Job:
    """A job whose scale can be read and written, or fails once."""

    def __init__(self, replicas: int, *, fails: int = 0) -> None:
        self.replicas = replicas
        self.was_read = False
        self.fails = fails
        self.reads_fail = 0
        self.written: list[int] = []

    def read(self) -> int:
        self.was_read = True
        if self.reads_fail:
            self.reads_fail -= 1
            raise SettingError("anything", "that the head can't help")
        return self.replicas

    def write(self, replicas: int) -> None:
        if self.fails:
            self.fails -= 1
            raise SettingError("anything", "that the head can't help")
        self.replicas = replicas
        self.written.append(replicas)


def run_scaling(
    script: Script,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[[list[HostLeaving]], bool],
    limits: ScaleLimits = BY_DEMAND,
) -> list[HostLeaving]:
    """Let a head look again and again until something has happened; return which hosts were asked to go."""
    monkeypatch.setattr(scaling, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(scaling, "FAILED_SECONDS", 0.01)
    monkeypatch.setattr(scaling, "FOLLOW_SECONDS", 0.01)
    asked: list[HostLeaving] = []

    def handle(source: int, event: HostLeaving) -> None:
        asked.append(event)
        script.tell(source, event)

    async def look() -> None:
        dispatcher = SimpleNamespace(state=script.state, stopped=False, handle=handle, flush=lambda: None)
        loop = asyncio.get_running_loop()
        workload = PoolWorkload(cast("Dispatcher", dispatcher))
        keep_scale(loop, workload, limits=limits, scale=job)
        happened = asyncio.Event()

        def watch() -> None:
            if until(asked):
                happened.set()
            else:
                loop.call_later(0.005, watch)

        watch()
        await happened.wait()
        dispatcher.stopped = True

    asyncio.run(look())
    return asked


def test_a_head_asks_for_no_more_than_it_may_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = waiting()
    for number in range(1, 10):
        script.submit(number)
    job = Job(0, fails=2)
    assert run_scaling(script, job, monkeypatch, lambda _: bool(job.written)) == []
    assert job.written == [3]


def test_idle_workers_go_once_the_scale_is_lower_and_those_at_work_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(1, 1, 1)
    script.submit(1)
    job = Job(3)
    asked = run_scaling(script, job, monkeypatch, lambda asked: len(asked) == 2)
    assert [event.host for event in asked] == [3, 2]
    assert job.written == [1]


@pytest.mark.parametrize("theirs", [3, 0])
def test_a_scale_that_somebody_else_has_written_is_overwritten_before_workers_go(
    theirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Released before that, workers would be replaced again and again; and lacking ones would never come."""
    script = Script(1)
    job = Job(1)

    def until(asked: list[HostLeaving]) -> bool:
        if job.was_read and job.replicas == 1 and not job.written:
            job.replicas = theirs
            for host in (2, 3) if theirs else ():
                script.tell(DRIVER, HostJoined(host, f"host-{host}", (), 1, 1000))
            if not theirs:
                script.tell(DRIVER, HostLeaving(1, "its user has asked for none"))
        assert not asked or job.replicas == 1
        return bool(job.written) and len(asked) == (2 if theirs else 0)

    run_scaling(script, job, monkeypatch, until)
    assert job.replicas == 1


def test_of_more_workers_than_users_ask_for_idle_ones_go_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not those of the highest indexes: 3 is at work, and keeps what it has."""
    script = Script(1, 1, 1)
    script.submit(1)
    (busy,) = set(range(1, 4)) - set(script.state.list_idle_hosts())
    job = Job(1)
    job.reads_fail = 2
    asked = run_scaling(script, job, monkeypatch, lambda asked: len(asked) == 2, BY_USERS)
    assert busy not in {event.host for event in asked}
    assert job.written == []
    (told,) = caplog.messages
    assert told.startswith("nobody knows how many workers are asked for, so all stay: ")


def test_where_all_are_at_work_those_without_actors_go_once_their_tasks_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(1, 1, 1)
    commands = script.tell(DRIVER, ActorSubmitted(make_actor(9, shape=ONE_CPU), b"blob"))
    [home] = [each.host for each in commands if isinstance(each, StartWorker)]
    script.tell(DRIVER, WorkerJoined(4))
    for number in (1, 2):
        script.submit(number)
    assert script.state.list_idle_hosts() == ()
    job = Job(1)
    asked = run_scaling(script, job, monkeypatch, lambda asked: len(asked) == 2, BY_USERS)
    assert {event.host for event in asked} == {1, 2, 3} - {home}


def test_who_ends_what_he_has_stays_when_users_ask_for_more_or_another_one_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their pods count among those that the Job of workers has, so that no others would come."""
    script = Script(1, 1)
    for number in (1, 2):
        script.submit(number)
    job, steps = Job(1), list[int]()

    def until(asked: list[HostLeaving]) -> bool:
        count = script.state.count_worker_hosts()
        if count != (steps or [2])[-1]:
            steps.append(count)
        if steps == [1]:
            job.replicas = 2
        elif steps == [1, 2]:
            job.replicas = 1
        elif steps == [1, 2, 1] and len(asked) == 3:
            [stays] = {1, 2} - set(script.state.list_recallable_hosts())
            script.tell(DRIVER, HostLost(stays, "evicted"))
            steps.append(0)
        return steps == [1, 2, 1, 0, 1]

    asked = run_scaling(script, job, monkeypatch, until, BY_USERS)
    assert [type(event) for event in asked] == [HostLeaving, HostStaying] * 2


def test_no_worker_goes_while_users_ask_for_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    script, job = Script(1, 1), Job(0)
    looks = iter(range(20))
    limits = ScaleLimits(least=2, most=None)
    assert run_scaling(script, job, monkeypatch, lambda _: next(looks, None) is None, limits) == []
    job, looks = Job(2), iter(range(20))
    asked = run_scaling(
        script, job, monkeypatch, lambda _: job.was_read and next(looks, None) is None, BY_USERS
    )
    assert asked == []
