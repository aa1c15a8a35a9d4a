"""`wait`: exact, in order, the same objects, and never an exception of a task."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import InvalidOptionError, ObjectLostError
from fray.job import JobContext, ObjectRef, cells, create_job_ctx
from fray.job.cells import Cell
from fray.job.waiting import FEW, take_out
from tests.behaviour.gates import Gate


def identity(value: Any) -> Any:
    return value


def fail() -> None:
    raise ValueError("meant to fail")


def test_exactly_so_many_are_ready_in_the_order_given(ctx: JobContext) -> None:
    refs = [ctx.run(identity, n) for n in range(10)]
    ctx.get(refs)
    for wanted in (1, 3, 10):
        ready, pending = ctx.wait(refs, num_returns=wanted)
        assert ready == refs[:wanted]
        assert pending == refs[wanted:]
        assert all(a is b for a, b in zip([*ready, *pending], refs, strict=True))


def test_more_than_there_are_waits_for_all(ctx: JobContext) -> None:
    refs = [ctx.run(identity, n) for n in range(3)]
    assert ctx.wait(refs, num_returns=50) == (refs, [])
    assert ctx.wait([]) == ([], [])


def test_a_failed_task_is_ready(ctx: JobContext) -> None:
    ref = ctx.run(fail)
    assert ctx.wait([ref]) == ([ref], [])
    with pytest.raises(ValueError, match="meant to fail"):
        ctx.get(ref)


def test_values_and_repeated_refs_count_each(ctx: JobContext) -> None:
    ref = ctx.run(identity, 1)
    assert ctx.wait(["value", ref, ref], num_returns=3) == (["value", ref, ref], [])


@pytest.mark.parametrize("number", [0, -1])
def test_to_wait_for_none_is_refused(ctx: JobContext, number: int) -> None:
    with pytest.raises(InvalidOptionError, match="num_returns"):
        ctx.wait([ctx.put(1)], num_returns=number)


@pytest.mark.traits(concurrent=True)
def test_what_is_not_ready_stays_pending(ctx: JobContext, gate: Gate) -> None:
    slow = ctx.run(gate.pass_through)
    quick = [ctx.run(identity, n) for n in range(3)]
    refs = [quick[0], slow, quick[1], quick[2]]
    assert ctx.wait(refs, num_returns=3) == (quick, [slow])
    assert ctx.wait(refs, num_returns=4, timeout=0.02) == (quick, [slow])
    assert ctx.wait([slow], timeout=0) == ([], [slow])
    gate.open()
    assert ctx.wait(refs, num_returns=4) == (refs, [])


@pytest.mark.traits(concurrent=True)
def test_the_first_of_many_in_a_loop(ctx: JobContext) -> None:
    pending = [ctx.run(identity, n) for n in range(300)]
    seen = []
    while pending:
        ready, pending = ctx.wait(pending)
        assert len(ready) == 1
        seen.append(ctx.get(ready[0]))
    assert sorted(seen) == list(range(300))


def test_the_list_that_was_given_stays_as_it_was(ctx: JobContext) -> None:
    refs = [ctx.put(n) for n in range(5)]
    given_ones = list(refs)
    ready, rest = ctx.wait(refs, num_returns=2)
    assert refs == given_ones
    assert (ready, rest) == (refs[:2], refs[2:])
    assert ctx.wait(tuple(refs), num_returns=5) == (refs, [])


@pytest.mark.traits(concurrent=True)
def test_a_ref_that_is_there_twice_counts_twice(ctx: JobContext, gate: Gate) -> None:
    """Once it is ready two are, and nothing else has to be waited for."""
    opening, slow = Gate(gate.path.with_name("opening")), ctx.run(gate.pass_through)
    once = ctx.run(opening.pass_through)
    timer = threading.Timer(0.05, opening.open)
    timer.start()
    assert ctx.wait([slow, once, once], num_returns=2) == ([once, once], [slow])
    timer.join()


@pytest.mark.traits(concurrent=True)
def test_all_are_waited_for_in_whatever_order_they_come(ctx: JobContext, gate: Gate) -> None:
    refs = [ctx.run(gate.pass_through), *(ctx.run(identity, n) for n in range(3 * FEW))]
    timer = threading.Timer(0.05, gate.open)
    timer.start()
    assert ctx.wait(refs, num_returns=len(refs)) == (refs, [])
    timer.join()


@pytest.mark.traits(own_processes=True)
def test_refs_of_another_context_are_refused(ctx: JobContext, gate: Gate) -> None:
    slow = ctx.run(gate.pass_through)
    with create_job_ctx("sync") as other, pytest.raises(ObjectLostError):
        ctx.wait([slow, other.put(1)])


@given(st.lists(st.booleans(), max_size=4 * FEW))
def test_what_is_taken_out_and_what_stays_keep_their_order(chosen: list[bool]) -> None:
    taken, rest = take_out(list(range(len(chosen))), [place for place, one in enumerate(chosen) if one])
    assert taken == [place for place, one in enumerate(chosen) if one]
    assert rest == [place for place, one in enumerate(chosen) if not one]


class Counted(Cell):
    """Counts who asks whether it is ready."""

    asked = 0

    @property
    def ready(self) -> bool:
        Counted.asked += 1
        return self._there

    @ready.setter
    def ready(self, value: bool) -> None:
        self._there = value


@pytest.mark.parametrize("kind", ["sync", "threadpool"])
def test_a_loop_over_results_that_are_there_looks_at_each_once(kind: str) -> None:
    """Otherwise it takes minutes for 10,000 of them."""
    with create_job_ctx(kind) as context:
        pending = [ObjectRef(context._engine, Counted.of(number)) for number in range(1000)]
        Counted.asked = 0
        while pending:
            ready, pending = context.wait(pending)
            assert len(ready) == 1
        assert Counted.asked == 1000


def test_a_wait_that_was_in_vain_leaves_nothing_behind() -> None:
    with create_job_ctx("threadpool") as context:
        refs = [ObjectRef(context._engine, Cell(str(number))) for number in range(3)]
        assert context.wait(refs, num_returns=2, timeout=0.01) == ([], refs)
        assert not cells._gatherings


def test_an_item_that_another_reader_took_is_waited_for_anew() -> None:
    cell = Cell()
    later = threading.Timer(0.05, cell.succeed, args=[1])

    def take_away() -> None:
        cell._announce()  # of something that is gone when the thread that waits looks
        later.start()

    threading.Timer(0.05, take_away).start()
    with create_job_ctx("threadpool") as context:
        ref = ObjectRef(context._engine, cell)
        assert context.wait([ref]) == ([ref], [])
    later.join()
