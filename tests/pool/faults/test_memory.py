"""A task that takes more memory than it asked for ends, and its neighbours don't."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from fray.errors import ActorDiedError, WorkerDiedError
from fray.job import ActorOptions, JobContext, TaskOptions, get_job_context
from fray.runtime.pool.worker import memory_limits
from fray.runtime.pool.worker.memory_limits import Exceeded, MemoryLimits, resident_bytes
from fray.vocabulary import EXIT_WORKER_MEMORY
from tests.behaviour.gates import Gate
from tests.pool.chaos.inspection import settles

MB = 1_000_000
LIMIT = {"CPU": 1.0, "memory": 100.0 * MB}


def take(size: int, gate: Gate) -> int:
    taken = bytearray(b"x") * size
    gate.pass_through()
    return len(taken)


class Taker:
    def take(self, size: int, gate: Gate) -> int:
        return take(size, gate)


def test_a_task_that_takes_more_than_it_asked_for_ends_with_the_reason(ctx: JobContext, gate: Gate) -> None:
    options = TaskOptions(resources=LIMIT, retries=0, name="greedy")
    modest = ctx.run(take, 30 * MB, gate, options=replace(options, name="modest"))
    greedy = ctx.run(take, 300 * MB, gate, options=options)
    with pytest.raises(WorkerDiedError) as caught:
        ctx.get(greedy)
    assert caught.value.task == "greedy"
    assert f"code {EXIT_WORKER_MEMORY}: its tasks took more memory" in caught.value.story[-1]
    gate.open()
    assert ctx.get(modest) == 30 * MB


def hold(size: int) -> int:
    """Take so much for longer than it takes until a process is looked at."""
    taken = bytearray(b"x") * size
    time.sleep(5 * memory_limits.LOOK_SECONDS)
    return len(taken)


def wait_for_much(size: int) -> int:
    ctx = get_job_context()
    return ctx.get(ctx.run(hold, size, options=TaskOptions(retries=0)))


def test_who_takes_more_than_it_asked_for_costs_nobody_else(
    make_pool: Callable[[int], JobContext], gate: Gate
) -> None:
    ctx = make_pool(1)
    half = {"CPU": 0.5}
    neighbours = [
        ctx.run(take, 300 * MB, gate, options=TaskOptions(resources=half, retries=0)),
        ctx.run(take, 10, gate, options=TaskOptions(resources={"CPU": 0.0}, retries=0)),
        ctx.run(take, 20, gate, options=TaskOptions(resources={"CPU": 0.1, "memory": 100.0 * MB}, retries=0)),
    ]
    limited = TaskOptions(resources={**half, "memory": 100.0 * MB}, retries=0)
    greedy = ctx.run(take, 300 * MB, gate, options=limited)
    # It has its memory until it is seen to: the gate is closed.
    with pytest.raises(WorkerDiedError):
        ctx.get(greedy)
    gate.open()
    assert ctx.get(neighbours) == [300 * MB, 10, 20]


def test_a_limit_counts_nothing_of_what_the_task_waits_for(make_pool: Callable[[int], JobContext]) -> None:
    ctx = make_pool(1)
    options = TaskOptions(resources=LIMIT, retries=0)
    assert ctx.get(ctx.run(wait_for_much, 300 * MB, options=options)) == 300 * MB


def test_an_actor_that_takes_more_than_it_asked_for_ends(ctx: JobContext, gate: Gate) -> None:
    actor = ctx.create_actor(Taker, options=ActorOptions(resources={"memory": LIMIT["memory"]}))
    with pytest.raises(ActorDiedError, match="took more memory than they asked for"):
        ctx.get(actor.take.remote(300 * MB, gate))


def test_what_counts_is_the_growth_since_the_first_task_with_a_limit_began() -> None:
    memory = [500]
    found: list[Exceeded] = []
    limits = MemoryLimits(found.append, lambda: memory[0])
    limits.add(1, "unlimited", (("CPU", 1.0),))
    assert limits.look() is None
    limits.add(2, "first", (("CPU", 0.5), ("memory", 100.0)))
    limits.add(3, "second", (("memory", 50.0),))
    memory[0] = 650
    assert limits.look() is None
    memory[0] = 651
    exceeded = limits.look()
    assert exceeded == Exceeded(("first", "second"), 150, 151)
    assert str(exceeded).startswith("'first', 'second' took ")
    limits.remove(2)
    limits.remove(3)
    limits.remove(3)
    assert limits.look() is None


def watching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "fray-memory"}


def test_the_thread_that_looks_ends_when_nothing_has_a_limit_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = watching()
    monkeypatch.setattr(memory_limits, "IDLE_SECONDS", 0.0)
    found: list[Exceeded] = []
    memory = [0]
    limits = MemoryLimits(found.append, lambda: memory[0])
    limits.add(1, "ended", (("memory", 100.0),))
    assert len(watching() - others) == 1
    limits.remove(1)
    assert settles(lambda: not watching() - others)
    limits.add(2, "greedy", (("memory", 50.0),))
    memory[0] = 51
    assert settles(lambda: found == [Exceeded(("greedy",), 50, 51)])
    assert settles(lambda: not watching() - others)


def test_memory_is_what_this_process_has_for_itself() -> None:
    before = resident_bytes()
    taken = bytearray(b"x") * (64 * MB)
    after = resident_bytes()
    assert before is not None
    assert after is not None
    assert after - before > 60 * MB, len(taken)
