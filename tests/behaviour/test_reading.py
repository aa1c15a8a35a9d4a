"""Other ways to results: as they are ready, as futures, awaited, gathered, and mapped in packs."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import pytest

from fray.errors import GetTimeoutError, InvalidOptionError, TaskRaisedError
from fray.job import JobContext, ObjectRef, TaskOptions, get_job_context
from fray.job.mapping import MOST_ITEMS, ChunkSizer
from tests.behaviour.gates import Gate, Signal

PATIENCE = 120


def double(x: int) -> int:
    return 2 * x


def fail(x: int) -> int:
    raise KeyError(x)


def fail_at_three(x: int) -> int:
    if x == 3:
        raise KeyError(x)
    return x


def test_a_ref_gives_its_own_value(ctx: JobContext) -> None:
    assert ctx.run(double, 1).result() == 2
    assert ctx.put("value").result(timeout=PATIENCE) == "value"
    with pytest.raises(KeyError, match="7"):
        ctx.run(fail, 7).result()


@pytest.mark.traits(concurrent=True)
def test_a_result_that_is_late_is_an_error(ctx: JobContext, gate: Gate) -> None:
    ref = ctx.run(gate.pass_through)
    with pytest.raises(GetTimeoutError):
        ref.result(timeout=0.01)
    gate.open()
    ref.result(timeout=PATIENCE)


@pytest.mark.traits(concurrent=True)
def test_refs_come_as_they_are_ready(ctx: JobContext, gate: Gate) -> None:
    slow, quick, bad = ctx.run(gate.pass_through), ctx.run(double, 1), ctx.run(fail, 1)
    came: list[ObjectRef[Any]] = []
    for ref in ctx.as_completed([slow, quick, bad]):
        came.append(ref)
        if len(came) == 2:
            gate.open()
    assert set(came[:2]) == {quick, bad}
    assert came[2] == slow


def test_all_that_are_there_are_given_once(ctx: JobContext) -> None:
    refs = [ctx.run(double, n) for n in range(20)]
    assert sorted(ref.result() for ref in ctx.as_completed(refs)) == [2 * n for n in range(20)]
    assert sorted(ref.result() for ref in ctx.as_completed(iter(refs))) == [2 * n for n in range(20)]
    assert list(ctx.as_completed([])) == []


@pytest.mark.traits(concurrent=True)
def test_who_waits_for_the_next_one_gives_up_in_time(ctx: JobContext, gate: Gate) -> None:
    quick, slow = ctx.put(1), ctx.run(gate.pass_through)
    ready = ctx.as_completed([slow, quick], timeout=0.05)
    assert next(ready) == quick
    with pytest.raises(GetTimeoutError):
        next(ready)


def test_a_task_that_waits_for_the_next_one_lends_its_place(make_ctx: Callable[..., JobContext]) -> None:
    ctx = make_ctx(1)

    def total(n: int) -> int:
        here = get_job_context()
        return sum(ref.result() for ref in here.as_completed([here.run(double, each) for each in range(n)]))

    assert ctx.run(total, 5).result(timeout=PATIENCE) == 20


def wait_for_futures(n: int) -> int:
    ctx = get_job_context()
    futures = [ctx.run(double, each).future() for each in range(n)]
    wait(futures)
    return sum(future.result() for future in futures) + ctx.run(double, n).future().result()


async def await_refs(n: int) -> int:
    ctx = get_job_context()
    return sum(await asyncio.gather(*[ctx.run(double, each) for each in range(n)])) + await ctx.run(double, n)


async def get_in_a_thread(n: int) -> int:
    return await asyncio.to_thread(lambda: sum(get_job_context().map(double, range(n + 1))))


@pytest.mark.traits(pausing=True)
@pytest.mark.parametrize("function", [wait_for_futures, await_refs, get_in_a_thread])
def test_a_task_that_waits_for_futures_lends_its_place(
    make_ctx: Callable[..., JobContext], function: Callable[[int], int]
) -> None:
    assert make_ctx(1).run(function, 5).result(timeout=PATIENCE) == 30


def test_gathering(ctx: JobContext) -> None:
    refs = [ctx.run(double, n) for n in range(3)]
    assert ctx.gather(*refs) == [0, 2, 4]
    assert ctx.gather() == []
    with pytest.raises(KeyError):
        ctx.gather(refs[0], ctx.run(fail, 1))
    first, error = ctx.gather(refs[1], ctx.run(fail, 1), return_exceptions=True)
    assert first == 2
    assert isinstance(error, KeyError)


@pytest.mark.traits(concurrent=True)
def test_gathering_gives_up_in_time(ctx: JobContext, gate: Gate) -> None:
    with pytest.raises(GetTimeoutError):
        ctx.gather(ctx.put(1), ctx.run(gate.pass_through), timeout=0.01, return_exceptions=True)


def test_futures_of_the_standard_library(ctx: JobContext) -> None:
    good, bad = ctx.run(double, 4).future(), ctx.run(fail, 4).future()
    assert isinstance(good, Future)
    done, rest = wait([good, bad], timeout=PATIENCE)
    assert (done, rest) == ({good, bad}, set())
    assert good.result() == 8
    assert isinstance(bad.exception(), KeyError)
    called = threading.Event()
    good.add_done_callback(lambda _: called.set())
    assert called.wait(PATIENCE)


@pytest.mark.traits(concurrent=True)
def test_a_callback_that_exits_costs_no_other_future(make_ctx: Callable[..., JobContext], gate: Gate) -> None:
    ctx = make_ctx(1)
    held = ctx.run(gate.pass_through).future()
    held.add_done_callback(lambda _: sys.exit(3))
    later = ctx.run(double, 1).future()
    gate.open()
    assert later.result(timeout=PATIENCE) == 2


@pytest.mark.traits(concurrent=True)
def test_a_cancelled_future_cancels_its_task(make_ctx: Callable[..., JobContext], gate: Gate) -> None:
    ctx = make_ctx(1)
    blocker = ctx.run(gate.pass_through)
    waiting = ctx.run(double, 1)
    future = waiting.future()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(timeout=PATIENCE)
    with pytest.raises(Exception, match="cancelled"):
        waiting.result(timeout=PATIENCE)
    gate.open()
    blocker.result(timeout=PATIENCE)


@pytest.mark.traits(concurrent=True)
def test_the_end_of_a_context_ends_futures(make_ctx: Callable[..., JobContext], gate: Gate) -> None:
    ctx = make_ctx(1)
    futures = [ctx.run(gate.pass_through).future() for _ in range(3)]
    ctx.shutdown()
    assert all(future.exception(timeout=PATIENCE) is not None for future in futures)


def test_refs_can_be_awaited(ctx: JobContext) -> None:
    class Counter:
        def add(self, more: int) -> int:
            return more + 1

    actor = ctx.create_actor(Counter)

    async def main() -> list[Any]:
        many = [asyncio.ensure_future(_await(ctx.run(double, n))) for n in range(10)]
        with pytest.raises(KeyError):
            await ctx.run(fail, 1)
        return [await ctx.run(double, 1), await actor.add(1), sum(await asyncio.gather(*many))]

    assert asyncio.run(main()) == [2, 2, 90]


async def _await(ref: ObjectRef[int]) -> int:
    return await ref


def test_starmap(ctx: JobContext) -> None:
    assert list(ctx.starmap(pow, [(2, 3), (3, 2), (5, 0)])) == [8, 9, 1]
    assert list(ctx.starmap(pow, iter([(2, 3), (3, 2)]), chunksize=2)) == [8, 9]
    assert list(ctx.starmap(pow, [])) == []


@pytest.mark.parametrize("chunksize", [1, 3, 1000, "auto"])
def test_packed_items_come_in_their_order(ctx: JobContext, chunksize: Any) -> None:
    assert list(ctx.map(double, range(100), chunksize=chunksize)) == [2 * n for n in range(100)]
    pairs = ctx.map(pow, range(7), itertools.repeat(2), chunksize=chunksize)
    assert list(pairs) == [n**2 for n in range(7)]
    unordered = ctx.map(double, range(100), ordered=False, chunksize=chunksize)
    assert sorted(unordered) == [2 * n for n in range(100)]


@pytest.mark.traits(concurrent=True)
def test_unordered_results_come_as_they_are_ready(ctx: JobContext, gate: Gate, signal: Signal) -> None:
    def pass_first(n: int) -> int:
        if n == 0:
            gate.pass_through()
        return n

    results = ctx.map(pass_first, range(3), ordered=False)
    assert {next(results), next(results)} == {1, 2}
    gate.open()
    assert list(results) == [0]


def test_an_endless_input_is_read_as_results_are_taken(ctx: JobContext) -> None:
    for how in ({"chunksize": "auto"}, {"chunksize": 2, "ordered": False}, {}):
        taken = 0

        def numbers() -> Any:
            nonlocal taken
            while True:
                taken += 1
                yield taken

        results: Any = ctx.map(double, numbers(), ahead=4, **how)  # type: ignore[call-overload]
        next(results)
        results.close()
        assert taken <= 4 * 8


def test_an_exception_of_an_item_is_that_of_its_pack(ctx: JobContext) -> None:
    results = ctx.map(fail_at_three, range(10), chunksize=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(KeyError, match="3"):
        next(results)


@pytest.mark.parametrize("chunksize", [1, 2, 8, "auto"])
def test_a_stop_iteration_of_an_item_is_an_error_and_ends_no_pack(ctx: JobContext, chunksize: Any) -> None:
    def stop_at_three(n: int) -> int:
        return n if n != 3 else next(iter(()))

    with pytest.raises(TaskRaisedError, match="StopIteration"):
        list(ctx.map(stop_at_three, range(8), chunksize=chunksize))
    with pytest.raises(TaskRaisedError, match="StopIteration"):
        list(ctx.starmap(stop_at_three, [(n,) for n in range(8)], chunksize=chunksize))


def test_generators_and_coroutines_are_not_packed(ctx: JobContext) -> None:
    async def later(x: int) -> int:
        return x + 1

    def both(x: int) -> Any:
        yield x
        yield -x

    assert list(ctx.map(later, range(3), chunksize=2)) == [1, 2, 3]
    assert list(ctx.map(both, range(1, 3), chunksize="auto")) == [[1, -1], [2, -2]]


@pytest.mark.parametrize("chunksize", [0, -1, 1.5, "much", None])
def test_other_sizes_are_refused(ctx: JobContext, chunksize: Any) -> None:
    with pytest.raises(InvalidOptionError, match="chunksize"):
        ctx.map(double, range(3), chunksize=chunksize)


def test_options_count_for_packs(ctx: JobContext, tmp_path: Any) -> None:
    def fail_once(n: int) -> int:
        seen = tmp_path / str(n)
        if not seen.exists():
            seen.touch()
            raise OSError(n)
        return n

    options = TaskOptions(retries=10, retry_exceptions=(OSError,))
    assert list(ctx.map(fail_once, range(4), options=options, chunksize=2)) == [0, 1, 2, 3]


def test_packs_grow_with_short_items_and_stay_small_with_long_ones() -> None:
    sizer = ChunkSizer("auto")
    sizes = [sizer.size]
    for _ in range(10):
        sizer.note(sizer.size, sizer.size * 1e-7)
        sizes.append(sizer.size)
    assert sizes == sorted(sizes)
    assert sizes[-1] == MOST_ITEMS
    sizer.note(MOST_ITEMS, MOST_ITEMS * 0.01)
    assert sizer.size == 2
    sizer.note(2, 60.0)
    assert sizer.size == 1
    fixed = ChunkSizer(5)
    fixed.note(5, 1e-9)
    assert fixed.size == 5
