"""Options that mean nothing are refused where they are given, with the option named; nothing else suffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fray.errors import InvalidOptionError
from fray.job import ActorOptions, JobContext, TaskOptions
from fray.job.options import CallOptions


def identity(value: Any) -> Any:
    return value


HOSTILE: list[tuple[str, Callable[[], object]]] = [
    (r"resources\['CPU'\]", lambda: TaskOptions(resources={"CPU": float("inf")})),
    (r"resources\['CPU'\]", lambda: TaskOptions(resources={"CPU": float("nan")})),
    (r"resources\['CPU'\]", lambda: TaskOptions(resources={"CPU": 1e308})),
    (r"resources\['CPU'\]", lambda: TaskOptions(resources={"CPU": "two"})),  # type: ignore[dict-item]
    (r"resources\['memory'\]", lambda: TaskOptions(resources={"memory": 0.5})),
    ("resources", lambda: ActorOptions(resources={1: 2})),  # type: ignore[dict-item]
    ("resources", lambda: TaskOptions(resources={"gpu": 1, "GPU": 1})),
    ("name", lambda: TaskOptions(name=5)),  # type: ignore[arg-type]
    ("name", lambda: ActorOptions(name=["x"])),  # type: ignore[arg-type]
    (r"env\['A'\]", lambda: TaskOptions(env={"A": [1]})),  # type: ignore[dict-item]
    (r"env\['A'\]", lambda: TaskOptions(env={"A": 3})),  # type: ignore[dict-item]
    (r"env\['A'\]", lambda: TaskOptions(env={"A": "\ud83d"})),
    ("env", lambda: ActorOptions(env={"A=B": "1"})),
    ("env", lambda: TaskOptions(env={"": "1"})),
    ("retries", lambda: TaskOptions(retries=1.5)),  # type: ignore[arg-type]
    ("retries", lambda: TaskOptions(retries=None)),  # type: ignore[arg-type]
    ("max_calls", lambda: TaskOptions(max_calls=0)),
    ("timeout", lambda: TaskOptions(timeout=float("nan"))),
    ("timeout", lambda: TaskOptions(timeout="1 s")),  # type: ignore[arg-type]
    ("retry_exceptions", lambda: TaskOptions(retry_exceptions="ValueError")),  # type: ignore[arg-type]
    ("retry_exceptions", lambda: TaskOptions(retry_exceptions=(1,))),  # type: ignore[arg-type]
    ("max_concurrency", lambda: ActorOptions(max_concurrency=1.5)),  # type: ignore[arg-type]
    ("max_restarts", lambda: ActorOptions(max_restarts=-2)),
    ("max_task_retries", lambda: CallOptions(max_task_retries=-2)),
]


@pytest.mark.parametrize(("option", "make"), HOSTILE)
def test_an_option_that_means_nothing_is_refused(option: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{option}"):
        make()


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_that_cannot_be_counted_are_refused(
    make_ctx: Callable[..., JobContext], traits: Any, workers: Any
) -> None:
    if traits.concurrent:
        with pytest.raises(InvalidOptionError, match="max_workers"):
            make_ctx(workers)
    else:
        assert make_ctx(workers).get(make_ctx(workers).run(identity, 1)) == 1


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None])
def test_a_wait_for_what_cannot_be_counted_is_refused(ctx: JobContext, count: Any) -> None:
    with pytest.raises(InvalidOptionError, match="num_returns"):
        ctx.wait([ctx.run(identity, n) for n in range(3)], count)


def test_a_wait_takes_whatever_gives_refs(ctx: JobContext) -> None:
    ready, rest = ctx.wait((ctx.run(identity, n) for n in range(3)), 3)  # type: ignore[arg-type]
    assert sorted(ctx.get(ready)) == [0, 1, 2]
    assert rest == []


@pytest.mark.parametrize("kinds", [[ZeroDivisionError], ZeroDivisionError, (ValueError, ArithmeticError)])
def test_exceptions_to_retry_may_be_one_class_or_any_collection(ctx: JobContext, kinds: Any) -> None:
    options = TaskOptions(retry_exceptions=kinds, retries=1)
    with pytest.raises(ZeroDivisionError):
        ctx.get(ctx.run(divmod, 1, 0, options=options))
    assert ctx.get(ctx.run(identity, 1)) == 1
