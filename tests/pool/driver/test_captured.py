"""What functions have captured lives no longer than they are used, and is never a stranger's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fray.job import JobContext, TaskOptions, get_default_job_ctx
from tests.behaviour.gates import Gate
from tests.pool.chaos.inspection import pool_of, settles

MakePool = Callable[[int], JobContext]
MIB = 1024**2


def reading(ref: Any) -> Callable[[], int]:
    def read() -> int:
        return len(get_default_job_ctx().get(ref))

    return read


def read_once(ctx: JobContext) -> int:
    size: int = ctx.get(ctx.run(reading(ctx.put(bytes(MIB)))))
    return size


def test_references_in_a_closure_go_with_the_function(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    assert [read_once(ctx) for _ in range(5)] == [MIB] * 5
    assert settles(lambda: pool_of(ctx).objects._store.usage().memory == 0)
    read = reading(ctx.put(bytes(MIB)))
    assert [ctx.get(ctx.run(read)) for _ in range(3)] == [MIB] * 3


class Keeper:
    def keep(self, refs: list[Any], gate: Gate) -> None:
        self.refs = refs
        threading.Thread(target=self.drop, args=(gate,)).start()

    def drop(self, gate: Gate) -> None:
        gate.pass_through()
        self.refs = []


def test_a_reference_that_a_thread_of_an_actor_drops_goes_without_a_further_call(
    make_pool: MakePool, gate: Gate
) -> None:
    ctx = make_pool(1)
    keeper = ctx.create_actor(Keeper)
    ctx.get(keeper.keep([ctx.put(bytes(MIB))], gate))
    gate.open()
    assert settles(lambda: pool_of(ctx).objects._store.usage().memory == 0)


def test_timers_go_with_their_tasks(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    refs = [ctx.run(int, options=TaskOptions(timeout=3600.0)) for _ in range(50)]
    assert ctx.get(refs) == [0] * 50
    assert not pool_of(ctx)._head._dispatcher._timers
