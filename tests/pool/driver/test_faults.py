"""Processes of a pool die or stand still, threads are interrupted: the pool goes on, or says why not."""

from __future__ import annotations

import os
import signal as signals
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.errors import ObjectLostError, PoolClosedError, TaskCancelledError, WorkerDiedError
from fray.job import JobContext, TaskOptions
from fray.runtime.pool import local_pool
from fray.runtime.pool.host.processes import children
from tests.behaviour.gates import Gate, Signal, append, lines
from tests.pool.driver.processes import await_end, nanny_of, workers_of

MakePool = Callable[[int], JobContext]


def block(signal: Signal, gate: Gate) -> int:
    signal.send()
    gate.pass_through()
    return os.getpid()


def block_once(path: Path, signal: Signal, gate: Gate) -> int:
    append(path, str(os.getpid()))
    if len(lines(path)) == 1:
        block(signal, gate)
    return len(lines(path))


def test_a_worker_that_is_killed_is_replaced_and_its_task_run_again(
    make_pool: MakePool, signal: Signal, gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    ref = ctx.run(block_once, tmp_path / "runs", signal, gate)
    signal.wait()
    os.kill(int(lines(tmp_path / "runs")[0]), signals.SIGKILL)
    assert ctx.get(ref) == 2
    assert ctx.stats().workers == 1


def test_a_task_without_retries_tells_how_its_worker_died(
    make_pool: MakePool, signal: Signal, gate: Gate
) -> None:
    ctx = make_pool(1)
    (worker,) = workers_of(ctx, 1)
    ref = ctx.run(block, signal, gate, options=TaskOptions(retries=0))
    signal.wait()
    os.kill(worker, signals.SIGKILL)
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        ctx.get(ref)


def test_a_worker_that_stands_still_is_ended_by_force(
    make_pool: MakePool, signal: Signal, gate: Gate
) -> None:
    ctx = make_pool(1)
    (worker,) = workers_of(ctx, 1)
    ref = ctx.run(block, signal, gate)
    signal.wait()
    os.kill(worker, signals.SIGSTOP)
    ctx.cancel(ref, force=True)
    with pytest.raises(TaskCancelledError, match="block"):
        ctx.get(ref)
    await_end([worker])
    assert ctx.get(ctx.run(len, "abc")) == 3


def test_shutdown_ends_a_worker_that_stands_still(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    (worker,) = workers_of(ctx, 1)
    nanny = nanny_of(os.getpid())
    os.kill(worker, signals.SIGSTOP)
    ctx.shutdown()
    await_end([worker, nanny])


def test_a_nanny_that_is_killed_is_replaced_and_tasks_are_run_again(
    make_pool: MakePool, signal: Signal, gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(2)
    big = ctx.put(b"x" * 1_000_000)
    made = ctx.run(bytes, 2_000_000)
    workers = workers_of(ctx, 2)
    ref = ctx.run(block_once, tmp_path / "runs", signal, gate)
    signal.wait()
    before = nanny_of(os.getpid())
    os.kill(before, signals.SIGKILL)
    assert ctx.get(ref) == 2
    assert nanny_of(os.getpid()) != before
    await_end(workers)
    # Files in the store outlive the processes that wrote them.
    assert len(ctx.get(big)) == 1_000_000
    assert ctx.get(ctx.run(len, made)) == 2_000_000


def test_a_nanny_that_never_comes_up_ends_the_pool_with_the_reason(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_pool, "_RUN_NANNY", "raise SystemExit(1)")
    monkeypatch.setattr(local_pool, "STARTS_SECONDS", 3600.0)  # a slow machine needs more than a minute
    ctx = make_pool(1)
    with pytest.raises(PoolClosedError, match=r"ended 6 times within a minute"):
        ctx.get(ctx.run(len, "abc"))
    assert "ended 6 times within a minute" in caplog.text
    with pytest.raises(PoolClosedError):
        ctx.run(len, "abc")


def test_an_interrupted_get_leaves_the_pool_usable(make_pool: MakePool, signal: Signal, gate: Gate) -> None:
    ctx = make_pool(1)
    ref = ctx.run(block, signal, gate)

    def interrupt() -> None:
        signal.wait()
        while not ctx._engine.client._waiters:
            time.sleep(0.001)  # it mustn't come before the call that it is for
        signals.pthread_kill(threading.main_thread().ident or 0, signals.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ctx.get(ref)
    thread.join()
    assert ctx.wait([ref], timeout=0) == ([], [ref])
    gate.open()
    assert ctx.get([ref, ctx.run(len, "abc")]) == [workers_of(ctx, 1)[0], 3]


def test_many_threads_use_one_pool(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    results: list[int] = []

    def use(number: int) -> None:
        refs = [ctx.run(pow, number, 2) for _ in range(50)]
        value = ctx.put(number)
        ready, _ = ctx.wait(refs, num_returns=25)
        assert len(ready) == 25
        results.append(sum(ctx.get(refs)) + ctx.get(ctx.run(abs, value)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [50 * number**2 + number for number in range(10)]


def test_two_pools_are_apart(make_pool: MakePool) -> None:
    one, other = make_pool(1), make_pool(1)
    assert workers_of(one, 1) != workers_of(other, 1)
    ref, foreign = one.put("one"), other.put("other")
    assert ref.id == foreign.id
    assert ref != foreign
    assert (one.get(ref), other.get(foreign)) == ("one", "other")
    actor = other.create_actor(list)
    for use in (
        lambda: one.get(foreign),
        lambda: one.get([ref, foreign]),
        lambda: one.wait([foreign]),
        lambda: one.cancel(foreign),
        lambda: one.run(len, foreign),
    ):
        with pytest.raises(ObjectLostError, match="another context"):
            use()
    for nested in ([foreign], actor):
        with pytest.raises(Exception, match="another context"):
            one.run(len, nested)
        with pytest.raises(Exception, match="another context"):
            one.put([nested])
    one.shutdown()
    assert other.get(other.run(len, foreign)) == 5


def test_a_forked_child_leaves_the_pool_to_its_parent(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    ref = ctx.run(len, "abc")
    nanny = nanny_of(os.getpid())
    child = os.fork()
    if not child:
        code = 1
        try:
            ctx.run(len, "abc")
        except PoolClosedError as error:
            code = 0 if "parent" in str(error) else 2
        ctx.shutdown()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ctx.get(ref) == 3
    assert children(os.getpid()) == [nanny]
    assert ctx.get(ctx.run(len, "abc")) == 3
