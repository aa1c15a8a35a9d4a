"""Small values are counted against `memory=` too: many of them lie in the store, not in the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.job import JobContext, create_job_ctx, get_job_context
from fray.runtime.pool.client.client import PoolClient
from tests.behaviour.gates import Gate, Signal
from tests.pool.chaos.inspection import pool_of, settles

MEMORY = 8 * 1024**2
SIZE = 60_000
COUNT = 500
"""Values; all of them take several times the memory."""
ENOUGH = 100
"""Values after which the head tells its clients to store what follows; it keeps what is on its way."""


@pytest.fixture
def ctx() -> Iterator[JobContext]:
    with create_job_ctx("pool", max_workers=1, memory=MEMORY) as made:
        yield made


def kept_by_head(ctx: JobContext) -> int:
    kept: int = pool_of(ctx)._head.call(lambda state: state._tables.inline_bytes)
    return kept


def make(number: int) -> bytes:
    return bytes([number % 256]) * SIZE


def first(value: bytes) -> int:
    return value[0]


def client_of(ctx: JobContext) -> PoolClient:
    """Return this process's part of the pool, in the driver or in a worker."""
    engine: Any = ctx._engine
    client: PoolClient = engine.client
    return client


def await_limit(ctx: JobContext) -> None:
    """Wait until this process has heard that it is to store values of this size."""
    client = client_of(ctx)
    assert settles(lambda: client.inline_limit < SIZE)


def submit_many(signal: Signal, gate: Gate) -> list[int]:
    ctx = get_job_context()
    refs = [ctx.run(first, make(number)) for number in range(ENOUGH)]
    await_limit(ctx)
    refs += [ctx.run(first, make(number)) for number in range(ENOUGH, COUNT)]
    signal.send()
    gate.pass_through()
    return ctx.get(refs)


def test_small_results_are_stored_where_there_are_many(ctx: JobContext) -> None:
    refs = [ctx.run(make, number) for number in range(ENOUGH)]
    await_limit(ctx)
    refs += [ctx.run(make, number) for number in range(ENOUGH, COUNT)]
    ctx.wait(refs, num_returns=COUNT)
    assert kept_by_head(ctx) < COUNT * SIZE / 2
    stats = ctx.stats()
    assert stats.memory_bytes <= MEMORY
    assert stats.spilled_bytes > 0
    assert [value[0] for value in ctx.get(refs)] == [number % 256 for number in range(COUNT)]


def test_what_workers_submit_is_stored_where_it_is_much(ctx: JobContext, tmp_path: Path) -> None:
    gate, signal = Gate(tmp_path / "gate"), Signal(tmp_path / "signal")
    result = ctx.run(submit_many, signal, gate)
    signal.wait()
    assert kept_by_head(ctx) < COUNT * SIZE / 2
    gate.open()
    assert ctx.get(result, timeout=120) == [number % 256 for number in range(COUNT)]


def test_small_values_that_the_driver_puts_are_stored_too_until_others_are_gone(ctx: JobContext) -> None:
    refs = [ctx.put(make(number)) for number in range(ENOUGH)]
    await_limit(ctx)
    refs += [ctx.put(make(number)) for number in range(ENOUGH, COUNT)]
    assert kept_by_head(ctx) < COUNT * SIZE / 2
    assert [value[0] for value in ctx.get(refs)] == [number % 256 for number in range(COUNT)]
    del refs
    client = client_of(ctx)
    assert settles(lambda: ctx.get(ctx.run(abs, -1)) == 1 and client.inline_limit > SIZE)
