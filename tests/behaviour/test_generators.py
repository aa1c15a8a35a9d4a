"""Generator tasks: items one by one, `wait` again and again, and ends of every sort."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.command import await_condition
from fray.errors import TaskCancelledError
from fray.job import GeneratorFuture, JobContext, ObjectRef, TaskOptions
from fray.job.calls import MethodCall
from fray.job.threads import STREAM_ITEMS
from fray.job.traits import Feature, Traits
from fray.runtime.actor_life import PROBE
from tests.behaviour.gates import Gate, Signal, append, lines


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


async def async_numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


class Waves:
    async def count(self, count: int) -> AsyncIterator[int]:
        async for number in async_numbers(count):
            yield number


def fail_after(count: int) -> Iterator[int]:
    yield from range(count)
    raise ArithmeticError("meant to fail")


def endless() -> Iterator[int]:
    yield from itertools.count()


def signal_at_end(signal: Signal) -> Iterator[int]:
    try:
        yield from itertools.count()
    finally:
        signal.send()


def started(ctx: JobContext, function: Callable[..., Any], *args: Any) -> GeneratorFuture:
    future = ctx.run(function, *args)
    assert isinstance(future, GeneratorFuture)
    return future


def test_items_come_one_by_one(ctx: JobContext, traits: Traits) -> None:
    future = started(ctx, numbers, 300)
    first = next(future)
    assert isinstance(first, ObjectRef) != traits.plain_items
    assert ctx.get(first) == 0
    assert [ctx.get(item) for item in future] == list(range(1, 300))
    with pytest.raises(StopIteration):
        next(future)


def test_items_of_async_generators_come_one_by_one(ctx: JobContext) -> None:
    assert [ctx.get(item) for item in started(ctx, async_numbers, 50)] == list(range(50))
    waves = ctx.create_actor(Waves)
    future = waves.count(50)
    assert isinstance(future, GeneratorFuture)
    assert [ctx.get(item) for item in future] == list(range(50))
    abandoned = started(ctx, async_numbers, 100_000)
    assert ctx.get(next(abandoned)) == 0
    del abandoned
    gc.collect()
    assert ctx.get(ctx.run(sum, [1, 2])) == 3


def test_a_generator_that_nobody_reads_any_more_ends(ctx: JobContext, tmp_path: Path) -> None:
    signal = Signal(tmp_path / "ended")
    # Open for both before it ends, which it does here and now in some contexts.
    with open(signal.path, "r+b", buffering=0) as reader:  # noqa: PTH123
        future = started(ctx, signal_at_end, signal)
        assert ctx.get(next(future)) == 0
        del future
        gc.collect()
        assert reader.read(1) == b"!"


def test_get_gives_the_items_that_next_has_not_taken(ctx: JobContext) -> None:
    future = started(ctx, numbers, 300)
    assert ctx.get(next(future)) == 0
    for _ in range(2):
        assert ctx.get(future) == list(range(1, 300))
    with pytest.raises(StopIteration):
        next(future)
    assert ctx.get(started(ctx, numbers, 0)) == []


def test_a_generator_as_an_argument_is_the_list_of_its_items(ctx: JobContext) -> None:
    assert ctx.get(ctx.run(sum, started(ctx, numbers, 300))) == sum(range(300))


def test_a_map_and_reduce_that_waits_for_the_same_futures_again_and_again(ctx: JobContext) -> None:
    futures = [started(ctx, numbers, 100) for _ in range(5)]
    taken: dict[GeneratorFuture, list[int]] = {future: [] for future in futures}
    live = list(futures)
    while live:
        ready, rest = ctx.wait(live, num_returns=1)
        assert len(ready) == 1
        assert any(ready[0] is future for future in futures)
        assert [*ready, *rest] != []
        item = next(ready[0], None)
        if item is None:
            live.remove(ready[0])
        else:
            taken[ready[0]].append(ctx.get(item))
            live = [*rest, *ready]  # take turns
    assert list(taken.values()) == [list(range(100))] * 5


@pytest.mark.traits(concurrent=True)
def test_a_generator_is_ready_while_an_item_is_there(ctx: JobContext, gate: Gate) -> None:
    def one_then_blocked(gate: Gate) -> Iterator[int]:
        yield 1
        gate.pass_through()
        yield 2

    future = started(ctx, one_then_blocked, gate)
    assert ctx.wait([future]) == ([future], [])
    assert ctx.get(next(future)) == 1
    assert ctx.wait([future], timeout=0.02) == ([], [future])
    gate.open()
    assert ctx.wait([future]) == ([future], [])
    assert ctx.get(next(future)) == 2
    assert ctx.wait([future]) == ([future], [])  # ended is ready, too


def test_an_exception_comes_after_the_items_before_it(ctx: JobContext) -> None:
    future = started(ctx, fail_after, 3)
    assert [ctx.get(next(future)) for _ in range(3)] == [0, 1, 2]
    assert ctx.wait([future]) == ([future], [])
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="meant to fail"):
            ctx.get(next(future))
    with pytest.raises(ArithmeticError):
        ctx.get(started(ctx, fail_after, 3))


def test_a_wrong_call_fails_at_the_first_item(ctx: JobContext) -> None:
    with pytest.raises(TypeError):
        ctx.get(next(started(ctx, numbers, 1, 2)))
    with pytest.raises(ArithmeticError):
        ctx.get(next(started(ctx, numbers, started(ctx, fail_after, 0))))


@pytest.mark.traits(pausing=True)
@pytest.mark.parametrize("workers", [1, 2])
def test_endless_generators_pause_and_leave_room_for_others(
    make_ctx: Callable[..., JobContext], workers: int
) -> None:
    ctx = make_ctx(workers)
    futures = [started(ctx, endless) for _ in range(4)]
    assert [ctx.get(next(future)) for future in futures] == [0] * 4
    assert ctx.get(ctx.run(len, "abc")) == 3
    assert [ctx.get(item) for item in itertools.islice(futures[0], 500)] == list(range(1, 501))
    assert [ctx.get(next(future)) for future in futures] == [501, 1, 1, 1]


class Counting:
    """Gives large pages without end, and notes each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pages(self) -> Iterator[bytes]:
        for number in itertools.count():
            append(self.path, str(number))
            yield bytes([number % 256]) * 30_000


@pytest.mark.needs(Feature.METRICS)  # a pool of Fray's
def test_a_generator_waits_for_its_reader_although_others_ask_whether_its_actor_lives(
    ctx: JobContext, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    group = ctx.create_actor_group(Counting, noted, name="counting", count=1)
    (actor,) = group.wait_ready(timeout=60.0)
    pages = actor.pages.remote()
    assert ctx.get(next(pages), timeout=60)[0] == 0
    await_condition("it is ahead as far as it may be", lambda: len(lines(noted)) >= 17, timeout=60.0)
    for _ in range(50):  # what groups ask, and the supervisor of a FrayActor once
        ctx.get(actor._submit(MethodCall(PROBE)), timeout=60)
    assert len(lines(noted)) == 17
    assert [ctx.get(page)[0] for page in itertools.islice(pages, 100)] == list(range(1, 101))


@pytest.mark.traits(shared_memory=True)
def test_a_generator_runs_ahead_by_a_bounded_number(ctx: JobContext) -> None:
    made = 0

    def count() -> Iterator[int]:
        nonlocal made
        while True:
            made += 1
            yield made

    future = started(ctx, count)
    for taken in range(1, 1001):
        assert ctx.get(next(future)) == taken
        assert made <= taken + STREAM_ITEMS + 1


def test_a_generator_is_not_run_again(ctx: JobContext) -> None:
    future = ctx.run(fail_after, 1, options=TaskOptions(retries=3, retry_exceptions=True))
    assert isinstance(future, GeneratorFuture)
    assert ctx.get(next(future)) == 0
    with pytest.raises(ArithmeticError):
        ctx.get(next(future))


@pytest.mark.traits(concurrent=True)
def test_a_generator_that_nobody_reads_ends(ctx: JobContext, signal: Signal) -> None:
    future = started(ctx, signal_at_end, signal)
    assert ctx.get(next(future)) == 0
    del future
    gc.collect()
    signal.wait()


@pytest.mark.traits(concurrent=True)
def test_a_cancelled_generator_ends(ctx: JobContext, signal: Signal) -> None:
    future = started(ctx, signal_at_end, signal)
    assert ctx.get(next(future)) == 0
    ctx.cancel(future)
    signal.wait()
    with pytest.raises(TaskCancelledError, match="signal_at_end"):
        ctx.get(future)


def test_a_cancelled_generator_says_so(ctx: JobContext) -> None:
    future = started(ctx, endless)
    assert ctx.get(next(future)) == 0
    ctx.cancel(future)
    with pytest.raises(TaskCancelledError, match="endless"):
        ctx.get(future)
