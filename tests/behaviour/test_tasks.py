"""`run`, `create_task` and `map`: arguments, nesting, options, context variables."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fray.errors import InvalidOptionError, UnschedulableError
from fray.job import JobContext, ObjectRef, TaskOptions, get_job_context
from fray.job.traits import Feature, Traits
from tests.behaviour.gates import Gate, Signal, append, lines


def collect(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def add(left: int, right: int) -> int:
    return left + right


def sum_of_refs(refs: list[ObjectRef]) -> int:
    assert all(isinstance(ref, ObjectRef) for ref in refs)
    return sum(get_job_context().get(refs))


def depth(levels: int) -> int:
    ctx = get_job_context()
    return 0 if levels == 0 else 1 + int(ctx.get(ctx.run(depth, levels - 1)))


def tree(width: int, levels: int) -> int:
    ctx = get_job_context()
    if levels == 0:
        return 1
    return sum(ctx.get([ctx.run(tree, width, levels - 1) for _ in range(width)]))


def fail(message: str) -> None:
    raise LookupError(message)


def count_and_fail(path: Path, until: int, error: type[Exception]) -> int:
    append(path, "run")
    if len(lines(path)) < until:
        raise error
    return len(lines(path))


def test_a_task_gets_its_arguments(ctx: JobContext) -> None:
    assert ctx.get(ctx.run(collect, 1, "two", key=[3])) == ((1, "two"), {"key": [3]})
    assert ctx.get(ctx.run(partial(add, 1), 2)) == 3
    assert ctx.get(ctx.run(lambda: 42)) == 42


def test_refs_among_the_arguments_arrive_as_values(ctx: JobContext) -> None:
    left, right = ctx.put(1), ctx.run(add, 1, 1)
    assert ctx.get(ctx.run(add, left, right=right)) == 3
    assert ctx.get(ctx.run(collect, left, k=right)) == ((1,), {"k": 2})


def test_refs_inside_structures_stay_refs(ctx: JobContext) -> None:
    refs = [ctx.run(add, n, n) for n in range(4)]
    assert ctx.get(ctx.run(sum_of_refs, refs)) == 12
    args, kwargs = ctx.get(ctx.run(collect, {"ref": refs[1]}, inner=(refs[2],)))
    assert args[0]["ref"] == refs[1]
    assert kwargs["inner"] == (refs[2],)


def test_a_task_that_returns_a_ref_gives_that_ref(ctx: JobContext) -> None:
    ref = ctx.put(5)
    assert ctx.get(ctx.run(lambda inner: inner[0], [ref])) == ref


@pytest.mark.parametrize("workers", [1, 2])
def test_nested_tasks_end_with_few_workers(make_ctx: Callable[..., JobContext], workers: int) -> None:
    ctx = make_ctx(workers)
    assert ctx.get(ctx.run(depth, 6)) == 6
    assert ctx.get(ctx.run(tree, 3, 3)) == 27


def test_a_chain_of_tasks_is_resolved(ctx: JobContext) -> None:
    ref = ctx.put(0)
    for _ in range(200):
        ref = ctx.run(add, ref, 1)
    assert ctx.get(ref) == 200


def test_many_tasks(ctx: JobContext) -> None:
    assert ctx.get([ctx.run(add, n, 1) for n in range(2000)]) == list(range(1, 2001))


def test_a_coroutine_function_runs_to_its_result(ctx: JobContext) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value * 2

    assert ctx.get(ctx.run(later, 4)) == 8


@pytest.mark.traits(concurrent=True)
def test_as_many_tasks_run_at_once_as_there_are_workers(
    make_ctx: Callable[..., JobContext], traits: Traits, tmp_path: Path, gate: Gate
) -> None:
    ctx = make_ctx(2)
    signals = [Signal(tmp_path / f"signal-{n}") for n in range(2)]

    def meet(signal: Signal) -> None:
        signal.send()
        gate.pass_through()

    running = [ctx.run(meet, signal) for signal in signals]
    for signal in signals:
        signal.wait()  # both have started, and neither ends before the gate opens
    third = ctx.run(add, 1, 2)
    assert ctx.wait([third], timeout=0.05) == ([], [third])
    if Feature.STATS not in traits.refuses:
        assert ctx.stats().running == 2
        assert ctx.stats().waiting == 1
    gate.open()
    assert ctx.get([*running, third]) == [None, None, 3]


def test_both_spellings_of_create_task(ctx: JobContext) -> None:
    assert ctx.get(ctx.create_task(add, 1, 2)) == 3
    assert ctx.get(ctx.create_task(add, 1, right=2, options=TaskOptions(name="sum"))) == 3
    assert ctx.get(ctx.create_task(add, args=(1, 2))) == 3
    assert ctx.get(ctx.create_task(add, args=(1,), kwargs={"right": 2})) == 3
    assert ctx.get(ctx.create_task(len, (1, 2))) == 2

    def own(args: Any, kwargs: Any) -> Any:
        return args, kwargs

    assert ctx.get(ctx.create_task(own, args=(1,), kwargs={"a": 2})) == ((1,), {"a": 2})


def test_map_keeps_order_and_never_runs_far_ahead(ctx: JobContext) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for n in itertools.count():
            taken.append(n)
            yield n

    results = ctx.map(add, numbers(), itertools.repeat(10), ahead=4)
    assert list(itertools.islice(results, 50)) == list(range(10, 60))
    assert len(taken) <= 55
    assert list(ctx.map(add, [1, 2, 3], [10, 20])) == [11, 22]
    with pytest.raises(InvalidOptionError, match="ahead"):
        ctx.map(add, [], ahead=0)


def test_tasks_run_here_or_in_another_process(ctx: JobContext, traits: Traits) -> None:
    assert (ctx.get(ctx.run(os.getpid)) != os.getpid()) == traits.own_processes


def test_a_function_has_what_it_captured_as_it_is_at_each_run(ctx: JobContext) -> None:
    rate, rates = 1, [1]

    def read() -> tuple[int, list[int]]:
        return rate, rates

    assert ctx.get(ctx.run(read)) == (1, [1])
    rate = 2
    assert ctx.get(ctx.run(read)) == (2, [1])
    rates.append(3)
    assert ctx.get(ctx.run(read)) == (2, [1, 3])


def test_resources_bound_what_runs_or_are_not_looked_at(ctx: JobContext, traits: Traits, kind: str) -> None:
    ref = ctx.run(add, 1, 2, options=TaskOptions(resources={"GPU": 1000}))
    if kind == "hosts":  # nobody has told this pool that no such host will join
        assert ctx.wait([ref], timeout=0.05) == ([], [ref])
    elif traits.resources:
        with pytest.raises(UnschedulableError, match="GPU"):
            ctx.get(ref)
    else:
        assert ctx.get(ref) == 3


def test_a_task_is_run_again_for_the_exceptions_that_it_asks_for(ctx: JobContext, tmp_path: Path) -> None:
    options = TaskOptions(retries=2, retry_exceptions=(KeyError,))
    assert ctx.get(ctx.run(count_and_fail, tmp_path / "a", 3, KeyError, options=options)) == 3
    with pytest.raises(KeyError):
        ctx.get(ctx.run(count_and_fail, tmp_path / "b", 4, KeyError, options=options))
    assert len(lines(tmp_path / "b")) == 3
    with pytest.raises(ValueError):  # noqa: PT011 - the type is the point
        ctx.get(ctx.run(count_and_fail, tmp_path / "c", 2, ValueError, options=options))
    with pytest.raises(KeyError):
        ctx.get(ctx.run(count_and_fail, tmp_path / "d", 2, KeyError))
    assert len(lines(tmp_path / "c")) == len(lines(tmp_path / "d")) == 1
    every = TaskOptions(retries=1, retry_exceptions=True)
    assert ctx.get(ctx.run(count_and_fail, tmp_path / "e", 2, OSError, options=every)) == 2


variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.traits(context_variables=True)
def test_a_task_sees_a_copy_of_the_callers_context_variables(ctx: JobContext) -> None:
    def read_then_set() -> str:
        seen = variable.get()
        variable.set("changed by the task")
        return seen

    token = variable.set("of the caller")
    try:
        assert ctx.get(ctx.run(read_then_set)) == "of the caller"
        assert variable.get() == "of the caller"
    finally:
        variable.reset(token)


@pytest.mark.parametrize(
    "wrong",
    [{"retries": -1}, {"timeout": 0}, {"max_calls": 0}, {"resources": {"CPU": -1}}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
        TaskOptions(**wrong)
