"""`wait`: exact, in order, the same objects, and never an exception of a task."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
import weakref
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import InvalidOptionError, ObjectLostError
from fray.job import JobContext, ObjectRef, create_job_ctx
from fray.job.cells import Cell
from fray.job.pool_engine import PoolEngine
from fray.job.waiting import Rest, Snapshot
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
    refs = [ctx.run(gate.pass_through), *(ctx.run(identity, n) for n in range(50))]
    timer = threading.Timer(0.05, gate.open)
    timer.start()
    assert ctx.wait(refs, num_returns=len(refs)) == (refs, [])
    timer.join()


@pytest.mark.traits(own_processes=True)
def test_refs_of_another_context_are_refused(ctx: JobContext, gate: Gate) -> None:
    slow = ctx.run(gate.pass_through)
    with create_job_ctx("sync") as other, pytest.raises(ObjectLostError):
        ctx.wait([slow, other.put(1)])


@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 19)))))
def test_every_rest_is_the_list_that_it_was(steps: list[tuple[int, set[int]]]) -> None:
    """Whatever was taken from it since, and whichever of them is waited for next."""
    with create_job_ctx("sync") as context:
        refs = [ObjectRef(context._engine, Cell(str(number))) for number in range(20)]
        seen: list[tuple[list[ObjectRef[Any]], list[ObjectRef[Any]]]] = [(refs, list(refs))]
        for count, settled in steps:
            for number in settled:
                refs[number]._entry.succeed(number)
            given_ones, expected = seen[count % len(seen)]
            ready, rest = context.wait(given_ones, count, timeout=0)
            assert ready == [ref for ref in expected if ref._entry.ready][:count]
            seen.append((rest, [ref for ref in expected if ref not in ready]))
        for found, expected in seen:
            assert len(found) == len(expected)
            assert found == expected


def test_the_rest_can_be_used_as_any_list() -> None:
    with create_job_ctx("sync") as context:

        def make() -> list[int]:
            return context.wait([0, 1, 2, 3])[1]

        assert isinstance(make(), list)
        assert [*make()] == list(make()) == make()[:] == make().copy() == copy.copy(make()) == [1, 2, 3]
        assert make() == make()
        assert make() < [2]
        assert operator.add([0], make()) == [0, *make()] == [0, 1, 2, 3]
        assert operator.add(make(), [4]) == [1, 2, 3, 4]
        assert (make()[0], make()[-1], 3 in make(), make().index(2), make().count(2)) == (1, 3, True, 1, 1)
        assert (repr(make()), sorted(make()), [*reversed(make())]) == ("[1, 2, 3]", [1, 2, 3], [3, 2, 1])
        assert pickle.loads(pickle.dumps(make())) == copy.deepcopy(make()) == [1, 2, 3]
        sliced = [0, 0]
        sliced[:] = make()
        sliced.extend(make())
        assert sliced == [1, 2, 3] * 2 == make() * 2
        changed = make()
        changed.append(4)
        changed += make()
        del changed[0]
        assert changed == [2, 3, 4, 1, 2, 3]
        assert context.wait(changed, 6) == ([2, 3, 4, 1, 2, 3], [])
        assert bool(make())
        assert not context.wait([0])[1]


def test_a_rest_that_two_threads_look_into_at_once_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with create_job_ctx("sync") as context:
        _, rest = context.wait([0, 1, 2, 3])
        make = Snapshot.list

        def make_twice(snapshot: Snapshot[int]) -> list[int]:
            monkeypatch.setattr(Snapshot, "list", make)
            assert rest == [1, 2, 3]  # as another thread does
            return make(snapshot)

        monkeypatch.setattr(Snapshot, "list", make_twice)
        assert [*rest] == [1, 2, 3]


def test_what_was_taken_goes_when_nobody_has_it() -> None:
    """Otherwise a loop keeps the values of all results that it has used."""
    with create_job_ctx("sync") as context:
        _, pending = context.wait([context.put(number) for number in range(10)])
        while pending:
            ready, pending = context.wait(pending)
            taken = weakref.ref(ready[0])
            del ready
            assert taken() is None
        refs = [context.put(number) for number in range(10)]
        left = weakref.ref(refs[-1])
        _, rest = context.wait(refs)
        del refs, rest
        assert left() is None


@pytest.mark.traits(concurrent=True)
def test_two_threads_wait_for_the_same_rest(ctx: JobContext, gate: Gate) -> None:
    _, rest = ctx.wait([ctx.put(0), *(ctx.run(gate.pass_through) for _ in range(2))])
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(ctx.wait(rest, 2, 20))) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join()
    assert found == [(list(rest), [])] * 2


@pytest.mark.traits(concurrent=True)
def test_a_wait_that_was_broken_off_loses_nothing(ctx: JobContext, gate: Gate) -> None:
    slow = ctx.run(gate.pass_through)
    _, rest = ctx.wait([ctx.put(0), slow])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rest, "__init__", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            ctx.wait(rest, timeout=0)
    gate.open()
    assert ctx.wait(rest, timeout=20) == ([slow], [])


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
@pytest.mark.parametrize("backwards", [False, True])
def test_a_loop_over_results_looks_at_each_a_few_times(kind: str, *, backwards: bool) -> None:
    """Otherwise it takes minutes for 100,000 of them, above all where the first is the last to be there."""
    with create_job_ctx(kind) as context:
        pending = [ObjectRef(context._engine, Counted(str(number))) for number in range(1000)]
        coming = [ref._entry for ref in pending]
        coming = coming if backwards else coming[::-1]
        Counted.asked = 0
        while pending:
            coming.pop().succeed(None)
            ready, pending = context.wait(pending)
            assert len(ready) == 1
        assert Counted.asked <= 5 * 1000


@pytest.mark.parametrize("kind", ["threadpool", "pool"])
def test_a_loop_copies_no_refs(kind: str) -> None:
    """Each call once made both lists anew: minutes for 100,000."""
    with create_job_ctx(kind) as context:
        _, pending = context.wait([context.put(number) for number in range(100)])
        awaited = cast("Rest[ObjectRef[int]]", pending).snapshot.awaited  # type: ignore[union-attr]
        while pending:
            _, pending = context.wait(pending)
            assert cast("Rest[ObjectRef[int]]", pending).snapshot.awaited is awaited  # type: ignore[union-attr]
            assert not list.__len__(pending)


def test_a_wait_that_was_in_vain_leaves_nothing_behind() -> None:
    with create_job_ctx("threadpool") as context:
        refs = [ObjectRef(context._engine, Cell(str(number))) for number in range(3)]
        assert context.wait(refs, num_returns=2, timeout=0.01) == ([], refs)
        assert not any(ref._entry._listeners for ref in refs)


def test_a_wait_of_a_pool_that_was_in_vain_leaves_nothing_behind(gate: Gate) -> None:
    """A program that asks for the same slow result now and then would collect listeners to its end."""
    with create_job_ctx("pool", max_workers=1) as context:
        slow = context.run(gate.pass_through)
        for _ in range(3):
            assert context.wait([slow], timeout=0.01) == ([], [slow])
        client = cast("PoolEngine", context._engine).client
        client.flush()
        assert not client._listeners
        gate.open()
        assert context.wait([slow]) == ([slow], [])


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
