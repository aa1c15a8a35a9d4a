"""Values that can't be brought, don't fit, or are too large: typed errors, and a pool that goes on."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.errors import (
    SerializationError,
    StoreFullError,
    TaskCancelledError,
    ThreadStartError,
    WorkerDiedError,
)
from fray.job import JobContext, TaskOptions
from fray.runtime.pool.host.processes import children
from tests.pool.chaos.disk import small_disk
from tests.pool.chaos.inspection import nanny_of, pool_of, settles
from tests.pool.driver.processes import kill
from tests.pool.faults import values

MIB = 1024**2
PATIENCE = 60.0


def test_what_cannot_be_pickled_leaves_the_worker_alone(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(1)
    pid = ctx.get(ctx.run(os.getpid))
    with pytest.raises(SerializationError, match="lock"):
        ctx.get(ctx.run(values.make_lock))
    with pytest.raises(values.LockedError, match="no key"):
        ctx.get(ctx.run(values.raise_locked))
    assert ctx.get(ctx.run(os.getpid)) == pid


def test_an_exception_with_a_text_of_10_mb(ctx: JobContext) -> None:
    ref = ctx.run(values.raise_text, 10_000_000)
    refs = [ctx.run(pow, 2, n) for n in range(100)]
    with pytest.raises(ValueError, match=r"^x") as caught:
        ctx.get(ref)
    text = str(caught.value)
    assert text.endswith("end")
    assert "cut" in text  # the middle is left out: an error is no way to carry data
    assert len(text) < 100_000
    assert ctx.get(refs) == [2**n for n in range(100)]
    dependent = ctx.run(pow, ref, 2)
    with pytest.raises(ValueError, match=r"^x"):
        ctx.get(dependent)


def test_no_memory_is_an_error_of_the_task(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(1)
    ctx.get(ctx.run(values.limit_memory, 256 * MIB))
    with pytest.raises(MemoryError):
        ctx.get(ctx.run(values.allocate, 1024 * MIB))
    with pytest.raises(MemoryError):
        ctx.get(ctx.run(values.make_bytes, 1024 * MIB))
    assert ctx.get(ctx.run(values.allocate, MIB)) == MIB


def test_a_worker_without_memory_for_anything_ends_its_tasks(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(1)
    ctx.get(ctx.run(values.limit_memory, 0))
    # Each level takes a thread, for which there is no memory left. A worker that can start none for a task
    # that is alone there fails it, and another worker takes over.
    ended = ctx.run(values.nest, 20)
    assert ctx.wait([ended], timeout=60) == ([ended], [])
    with contextlib.suppress(WorkerDiedError, ThreadStartError, MemoryError, RuntimeError):
        assert ctx.get(ended) == 20
    with contextlib.suppress(ThreadStartError):
        assert ctx.get(ctx.run(pow, 2, 2), timeout=60) == 4
    assert ctx.get(ctx.run(pow, 2, 2), timeout=60) == 4


def test_a_result_larger_than_the_store_lies_on_disk(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(2, 64 * MIB)
    ref = ctx.run(values.make_bytes, 200 * MIB)
    small = ctx.run(values.make_bytes, MIB)
    assert ctx.get(ctx.run(len, ref)) == 200 * MIB
    assert ctx.get(ref) == values.make_bytes(200 * MIB)
    assert ctx.get(small) == values.make_bytes(MIB)
    usage = pool_of(ctx).objects._store.usage()
    assert usage.memory <= 64 * MIB
    assert usage.disk >= 200 * MIB


def test_results_that_are_together_larger_than_the_store(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(2, 16 * MIB)
    refs = [ctx.run(values.make_bytes, 3 * MIB + n) for n in range(20)]
    for n, ref in enumerate(refs):
        assert ctx.get(ref) == values.make_bytes(3 * MIB + n)
    assert pool_of(ctx).objects._store.usage().memory <= 16 * MIB


@pytest.fixture
def full_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files that has room for 8 MiB."""
    with small_disk(tmp_path / "small", size=8 * MIB) as disk:
        if disk is None:
            pytest.skip("mounting a file system needs root")
        monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
        yield disk.path


def test_a_full_store_is_told_and_has_room_again_later(
    full_soon: Path, make_pool: Callable[..., JobContext]
) -> None:
    ctx = make_pool(2, 4 * MIB)
    kept = [ctx.run(values.make_bytes, 3 * MIB + n) for n in range(3)]
    assert ctx.wait(kept, 3)[1] == []
    with pytest.raises(StoreFullError, match=str(full_soon)):
        ctx.get(ctx.run(values.make_bytes, 5 * MIB))
    with pytest.raises(StoreFullError):
        ctx.put(bytes(5 * MIB))
    assert ctx.get(ctx.run(pow, 2, 2)) == 4
    assert [len(ctx.get(ref)) for ref in kept] == [3 * MIB + n for n in range(3)]
    kept.clear()
    store = pool_of(ctx).objects._store
    assert settles(lambda: store.usage() == (0, 0))
    assert len(ctx.get(ctx.run(values.make_bytes, 5 * MIB))) == 5 * MIB
    ctx.shutdown()


def test_tasks_interrupted_while_they_make_references_end_and_leave_nothing_beyond_their_workers(
    ctx: JobContext, tmp_path: Path
) -> None:
    for n in range(40):
        ref = ctx.run(values.put_without_end, tmp_path / str(n), options=TaskOptions(retries=0))
        assert settles((tmp_path / str(n)).exists)
        ctx.cancel(ref)
        with pytest.raises(TaskCancelledError):
            ctx.get(ref, timeout=60)
    # An interrupt may come where a reference is made or dropped; it's known to the worker alone then.
    kill(children(nanny_of(pool_of(ctx))))  # one whose task didn't end was killed by its nanny
    assert ctx.get(ctx.run(pow, 2, 2)) == 4


def test_many_small_values_reach_a_task_whether_it_is_given_them_or_asks(
    make_pool: Callable[..., JobContext],
) -> None:
    ctx = make_pool(2)
    parts = [ctx.run(values.make_bytes, 60_000) for _ in range(400)]
    assert ctx.get(ctx.run(values.total_given, *parts), timeout=PATIENCE) == 400 * 60_000
    assert ctx.get(ctx.run(values.total_asked, parts), timeout=PATIENCE) == 400 * 60_000


def test_a_function_may_carry_a_large_value(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(1)
    large = bytes(40 * MIB)

    def measure() -> int:
        return len(large)

    with pytest.warns(UserWarning, match=r"measure -> large \(41\.9 MB\)"):
        ref = ctx.run(measure)
    assert ctx.get(ref, timeout=PATIENCE) == 40 * MIB
    assert ctx.get(ctx.run(pow, 2, 2), timeout=PATIENCE) == 4
