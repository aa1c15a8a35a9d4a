"""A small pool for each test, which must be sound and empty when the test is over."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, create_job_ctx
from tests.behaviour.gates import Gate, Signal
from tests.pool.chaos.inspection import leftovers, pool_of, settles, state_problem


@pytest.fixture
def make_pool() -> Iterator[Callable[..., JobContext]]:
    made: list[JobContext] = []

    def make(workers: int = 2, memory: int | None = None) -> JobContext:
        context = create_job_ctx("pool", max_workers=workers, memory=memory)
        assert isinstance(context, JobContext)
        made.append(context)
        return context

    yield make
    for context in made:
        pool = pool_of(context)
        if not context.closed:
            gc.collect()
            settles(lambda pool=pool: not leftovers(pool))  # type: ignore[misc]
            left = [*leftovers(pool), state_problem(pool)]
            context.shutdown()
            assert left == [""]
        context.shutdown()


@pytest.fixture
def ctx(make_pool: Callable[..., JobContext]) -> JobContext:
    return make_pool()


@pytest.fixture
def gate(tmp_path: Path, make_pool: Callable[..., JobContext]) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture
def signal_of_task(tmp_path: Path) -> Signal:
    return Signal(tmp_path / "signal")
