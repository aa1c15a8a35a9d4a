"""Actors live in processes that no task shares: what ends or stops a task costs no actor anything."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.errors import (
    ActorDiedError,
    InvalidOptionError,
    TaskCancelledError,
    TaskTimeoutError,
    WorkerDiedError,
)
from fray.job import ActorOptions, JobContext, TaskOptions, get_default_job_ctx
from tests.behaviour.gates import Signal
from tests.pool.chaos.inspection import settles
from tests.pool.faults import deaths


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value

    def process(self) -> int:
        return os.getpid()


class Other(Counter):
    pass


def sleep_in_c(signal_of_task: Signal) -> None:
    """Sleep where no interrupt of Python's comes through."""
    signal_of_task.send()
    ctypes.CDLL(None).sleep(600)


def hold_the_gil(signal_of_task: Signal, gate: Path) -> None:
    """Hold the GIL, in C, until the file `gate` is there."""
    signal_of_task.send()
    library = ctypes.PyDLL(None)
    path = str(gate).encode()
    while library.access(path, 0):
        library.usleep(100_000)


def of_process(ctx: JobContext, counters: list[Counter]) -> list[int]:
    return ctx.get([counter.process() for counter in counters])


@pytest.mark.parametrize("end", ["death", "timeout", "force"])
def test_the_end_of_a_task_costs_no_actor_its_state(
    make_pool: Callable[..., JobContext], signal_of_task: Signal, end: str
) -> None:
    ctx = make_pool(workers=1)
    counter = ctx.create_actor(Counter)
    assert ctx.get(counter.add()) == 1
    if end == "death":
        ref = ctx.run(deaths.kill_this_process, options=TaskOptions(retries=0))
    elif end == "timeout":
        ref = ctx.run(sleep_in_c, signal_of_task, options=TaskOptions(timeout=0.5))
    else:
        ref = ctx.run(sleep_in_c, signal_of_task)
        signal_of_task.wait()
        ctx.cancel(ref, force=True)
    with pytest.raises((TaskTimeoutError, TaskCancelledError, WorkerDiedError)):
        ctx.get(ref)
    assert ctx.get(counter.add()) == 2


def test_a_task_that_holds_the_gil_stops_no_actor(
    make_pool: Callable[..., JobContext], signal_of_task: Signal, tmp_path: Path
) -> None:
    ctx = make_pool(workers=1)
    counter = ctx.create_actor(Counter)
    gate = tmp_path / "gate"
    ref = ctx.run(hold_the_gil, signal_of_task, gate)
    signal_of_task.wait()
    assert ctx.get(counter.add(), timeout=60) == 1
    gate.touch()
    ctx.get(ref)


def test_actors_of_a_class_share_as_many_processes_as_there_are_workers(ctx: JobContext) -> None:
    counters = [ctx.create_actor(Counter) for _ in range(20)]
    others = [ctx.create_actor(Other) for _ in range(2)]
    tasks = set(ctx.get([ctx.run(os.getpid) for _ in range(20)]))
    shared, apart = set(of_process(ctx, counters)), set(of_process(ctx, others))
    assert len(shared) == 2
    assert not shared & apart
    assert not tasks & (shared | apart)


def test_an_isolated_actor_survives_those_of_its_class(ctx: JobContext) -> None:
    own = ActorOptions(isolation="process")
    first, second, third = (ctx.create_actor(Counter, options=own) for _ in range(3))
    processes = of_process(ctx, [first, second, third])
    assert len(set(processes)) == 3
    os.kill(processes[0], signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        ctx.get([first.add() for _ in range(1000)])
    assert ctx.get([second.add(), third.add()]) == [1, 1]


def test_another_isolation_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="isolation"):
        ActorOptions(isolation="thread")


class Keeper:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def keep(self, box: list[object]) -> int:
        self.kept += box
        return len(self.kept)


def test_an_actor_ends_that_only_itself_refers_to(ctx: JobContext) -> None:
    keeper = ctx.create_actor(Keeper)
    assert ctx.get(keeper.keep([keeper])) == 1
    del keeper
    gc.collect()
    assert settles(lambda: ctx.stats().actors == 0)


class KeeperOfValues(Keeper):
    """Keeps what it is given in a value of its own."""

    def keep(self, box: list[object]) -> int:
        return super().keep([get_default_job_ctx().put(box)])


def test_an_actor_ends_that_only_a_value_of_its_own_refers_to(ctx: JobContext) -> None:
    keeper = ctx.create_actor(KeeperOfValues)
    assert ctx.get(keeper.keep([keeper])) == 1
    del keeper
    gc.collect()
    assert settles(lambda: ctx.stats().actors == 0)


def test_actors_of_several_processes_that_only_refer_to_each_other_end(ctx: JobContext) -> None:
    alone = ActorOptions(isolation="process")
    keepers = [ctx.create_actor(Keeper, options=alone) for _ in range(3)]
    pairs = zip(keepers, [*keepers[1:], keepers[0]], strict=True)
    assert ctx.get([keeper.keep([other]) for keeper, other in pairs]) == [1] * 3
    assert ctx.stats().actors == 3
    del keepers, pairs
    gc.collect()
    assert settles(lambda: ctx.stats().actors == 0)
