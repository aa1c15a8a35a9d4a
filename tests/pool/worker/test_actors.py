"""Actors in a worker: order of calls, how many run at once, coroutines, generators, and their end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import ActorDiedError, TaskCancelledError
from fray.runtime.pool.messages.commands import CancelTask, EndActor, ResumeGenerator, RunTask
from fray.runtime.pool.messages.events import ActorEnded, ActorReady, ItemsProduced, TaskBlocked, TaskDone
from tests.pool.worker.gates import Gate, arrive
from tests.pool.worker.scripted_head import Pool


class Log:
    def __init__(self, first: str = "") -> None:
        self.lines = [first]
        self.thread = threading.get_ident()

    def add(self, line: str) -> list[str]:
        self.lines.append(line)
        return self.lines

    def pass_gate(self, path: Path) -> str:
        return arrive(path)

    def spin(self, path: Path) -> None:
        arrive(path)
        while True:
            time.sleep(0.001)

    def same_thread(self) -> bool:
        return self.thread == threading.get_ident()

    def count(self, end: int) -> Iterator[int]:
        yield from range(end)

    def count_large(self, end: int) -> Iterator[bytes]:
        """As `count`, with items of which only few are made ahead."""
        for number in range(end):
            self.lines.append(str(number))
            yield bytes(2000)

    def fail(self) -> None:
        raise KeyError("failed")


class Meeting:
    """Its guests wait for each other."""

    def __init__(self) -> None:
        self.guests = 0
        self.complete = asyncio.Event()

    async def meet(self, number: int) -> int:
        self.guests += 1
        if self.guests == number:
            self.complete.set()
        await self.complete.wait()
        return self.guests

    async def stay(self) -> None:
        await asyncio.Event().wait()

    def size(self) -> int:
        return self.guests


def start(pool: Pool, worker: int, kind: type, *args: object, **options: int) -> int:
    command = pool.actor(worker, kind, *args, **options)
    pool.tell(worker, command)
    assert pool.head.take(ActorReady) == (command.spec.id, 1)
    return command.spec.id


def test_an_actor_keeps_its_state_its_order_and_its_thread(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log, "begin")
    calls = [pool.method(worker, actor, "add", letter) for letter in "abc"]
    pool.tell(worker, *calls, same := pool.method(worker, actor, "same_thread"))
    assert [pool.value_of(call)[-1] for call in calls] == ["a", "b", "c"]
    assert pool.value_of(same)
    assert pool.value_of(call(pool, worker, actor, "add", "d")) == ["begin", "a", "b", "c", "d"]


def call(pool: Pool, worker: int, actor: int, method: str, *args: object) -> RunTask:
    command = pool.method(worker, actor, method, *args)
    pool.tell(worker, command)
    return command


def test_errors_of_methods_and_methods_that_are_not_there(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log)
    with pytest.raises(KeyError, match="failed"):
        pool.value_of(call(pool, worker, actor, "fail"))
    with pytest.raises(AttributeError, match="nothing"):
        pool.value_of(call(pool, worker, actor, "nothing"))
    assert pool.value_of(call(pool, worker, actor, "add", "on"))[-1] == "on"


def test_calls_exclude_each_other_unless_more_are_allowed(pool: Pool) -> None:
    worker = pool.start_worker()
    gates = [Gate(pool.folder, name) for name in "abc"]
    single, double = start(pool, worker, Log), start(pool, worker, Log, max_concurrency=2)
    held = call(pool, worker, single, "pass_gate", gates[0].path)
    behind = call(pool, worker, single, "add", "behind")
    pair = [call(pool, worker, double, "pass_gate", gate.path) for gate in gates[1:]]
    gates[2].open()
    assert pool.value_of(pair[1]) == "c"
    assert not [m for m in pool.head.seen() if isinstance(m, TaskDone) and m.id == behind.spec.id]
    for gate, command in ((gates[0], held), (gates[1], pair[0])):
        gate.open()
        assert pool.value_of(command) == gate.path.name
    assert pool.value_of(behind)[-1] == "behind"


def test_coroutine_methods_run_together_and_others_beside_them(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Meeting, max_concurrency=100)
    guests = [call(pool, worker, actor, "meet", 50) for _ in range(49)]
    assert pool.value_of(call(pool, worker, actor, "size")) <= 49
    guests.append(call(pool, worker, actor, "meet", 50))
    assert {pool.value_of(guest) for guest in guests} == {50}


def test_coroutine_methods_exclude_each_other_with_concurrency_1(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Meeting)
    staying = call(pool, worker, actor, "stay")
    size = call(pool, worker, actor, "size")
    pool.tell(worker, CancelTask(worker, staying.spec.id))
    with pytest.raises(TaskCancelledError):
        pool.value_of(staying)
    assert pool.value_of(size) == 0


def test_generator_methods_stream(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log)
    command = pool.method(worker, actor, "count", 3, streaming=True)
    pool.tell(worker, command)
    taken: list[Any] = []
    while len(taken) < 3:
        taken += pool.head.take(ItemsProduced, task=command.spec.id).items
    assert [pool.value(*item) for item in taken] == [0, 1, 2]
    assert pool.value_of(command) == 3


def begin_generator(pool: Pool, worker: int, actor: int) -> RunTask:
    """Start a generator of five items that may be two ahead of its reader, and let it wait for that."""
    command = pool.method(worker, actor, "count_large", 5, streaming=True, buffered=2)
    pool.tell(worker, command)
    assert pool.head.take(TaskBlocked).id == command.spec.id
    return command


def test_a_generator_method_waits_for_its_reader(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log, max_concurrency=2)
    command = begin_generator(pool, worker, actor)
    assert pool.value_of(call(pool, worker, actor, "add", "x")) == ["", "0", "1", "x"]
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 1))
    assert pool.head.take(TaskBlocked).id == command.spec.id
    assert pool.value_of(call(pool, worker, actor, "add", "y"))[-3:] == ["x", "2", "y"]
    pool.tell(worker, ResumeGenerator(worker, command.spec.id, 5))
    assert pool.value_of(command) == 5


def test_a_generator_method_runs_to_its_end_once_a_call_waits_for_its_place(pool: Pool) -> None:
    """Its reader may be who made that call."""
    worker = pool.start_worker()
    actor = start(pool, worker, Log)
    command = begin_generator(pool, worker, actor)
    assert pool.value_of(call(pool, worker, actor, "add", "x"))[-2:] == ["4", "x"]
    assert pool.value_of(command) == 5


def test_a_generator_method_before_which_a_call_waits_is_not_bounded(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log)
    gate = Gate(pool.folder)
    held = call(pool, worker, actor, "pass_gate", gate.path)
    command = pool.method(worker, actor, "count_large", 5, streaming=True, buffered=2)
    pool.tell(worker, command, last := pool.method(worker, actor, "add", "x"))
    gate.open()
    assert pool.value_of(held) == "gate"
    assert pool.value_of(last)[-2:] == ["4", "x"]


def test_an_actor_that_is_to_end_waits_for_no_reader(pool: Pool) -> None:
    worker = pool.start_worker()
    actor = start(pool, worker, Log)
    command = begin_generator(pool, worker, actor)
    pool.tell(worker, EndActor(worker, actor, 1, drain=True))
    assert pool.head.take(ActorEnded) == ActorEnded(actor, 1)
    assert pool.value_of(command) == 5


def test_a_constructor_that_raises_is_the_actors_end(pool: Pool) -> None:
    worker = pool.start_worker()
    command = pool.actor(worker, Log, 1, 2, 3)
    pool.tell(worker, command)
    ended = pool.head.take(ActorEnded, actor=command.spec.id)
    assert ended.outcome is not None
    with pytest.raises(TypeError):
        pool.value(0, ended.outcome)
    with pytest.raises(ActorDiedError):
        pool.value_of(call(pool, worker, command.spec.id, "add", "x"))


def test_an_actor_is_dropped_after_its_calls_or_at_once(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    drained, killed = start(pool, worker, Log), start(pool, worker, Log)
    held = call(pool, worker, drained, "pass_gate", gate.path)
    last = call(pool, worker, drained, "add", "last")
    pool.tell(worker, EndActor(worker, drained, 7, drain=False), EndActor(worker, drained, 1, drain=True))
    gate.open()
    assert pool.value_of(held) == "gate"
    assert pool.value_of(last)[-1] == "last"
    assert pool.head.take(ActorEnded) == ActorEnded(drained, 1)

    spinning = call(pool, worker, killed, "spin", gate.path)
    dropped = call(pool, worker, killed, "add", "never")
    gate.open()
    pool.tell(worker, EndActor(worker, killed, 1, drain=False))
    assert pool.head.take(ActorEnded) == ActorEnded(killed, 1)
    with pytest.raises(TaskCancelledError):
        pool.value_of(spinning)
    with pytest.raises(ActorDiedError):
        pool.value_of(call(pool, worker, killed, "add", "late"))
    assert not [m for m in pool.head.seen() if isinstance(m, TaskDone) and m.id == dropped.spec.id]


def test_a_call_that_waits_is_cancelled(pool: Pool) -> None:
    worker = pool.start_worker()
    gate = Gate(pool.folder)
    actor = start(pool, worker, Log)
    held = call(pool, worker, actor, "pass_gate", gate.path)
    waiting = call(pool, worker, actor, "add", "never")
    pool.tell(worker, CancelTask(worker, waiting.spec.id))
    with pytest.raises(TaskCancelledError):
        pool.value_of(waiting)
    gate.open()
    assert pool.value_of(held) == "gate"
    assert pool.value_of(call(pool, worker, actor, "add", "x")) == ["", "x"]
