"""`run` waits while too much of what the driver submitted hasn't ended, and goes on when some has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fray.errors import PoolClosedError
from fray.job import JobContext, get_job_context
from fray.runtime.pool import local_pool
from fray.runtime.pool.client.backpressure import SubmitLimit
from tests.behaviour.gates import Gate

MakePool = Callable[[int], JobContext]
SIZE = 10_000


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> SubmitLimit:
    made = SubmitLimit(max_bytes=20 * SIZE)
    monkeypatch.setattr(local_pool, "SubmitLimit", lambda: made)
    return made


def pass_through(gate: Gate, data: bytes) -> int:
    gate.pass_through()
    return len(data)


def submit_all(ctx: JobContext, count: int, call: tuple[Any, ...], result: list[Any]) -> None:
    try:
        result.extend([ctx.run(*call) for _ in range(count)])
    except PoolClosedError as error:
        result.append(error)


class Greedy:
    def submit(self, data: bytes, count: int) -> int:
        ctx = get_job_context()
        return int(sum(ctx.get([ctx.run(len, data) for _ in range(count)])))


class Finalized:
    """Submits when it dies, as code of users may."""

    def __init__(self, ctx: JobContext, refs: list[Any]) -> None:
        self.ctx, self.refs = ctx, refs

    def __del__(self) -> None:
        self.refs.append(self.ctx.run(len, "abc"))


def test_a_loop_that_submits_too_fast_is_slowed_down(make_pool: MakePool, limit: SubmitLimit) -> None:
    ctx = make_pool(2)
    data = b"x" * SIZE
    refs = [ctx.run(len, data) for _ in range(500)]
    assert ctx.get(refs) == [SIZE] * 500
    assert not limit.has_waiters
    assert limit._tasks == 500


def test_what_ended_before_anybody_waited_makes_room_at_once(make_pool: MakePool, limit: SubmitLimit) -> None:
    ctx = make_pool(1)
    refs = [ctx.run(len, b"x" * SIZE) for _ in range(20)]
    assert ctx.get(refs) == [SIZE] * 20
    assert limit.full  # nobody has asked yet what has ended
    assert ctx.get(ctx.run(len, "abc")) == 3
    assert not limit.full
    del refs  # until here, so that no release of them wakes the head


def test_run_blocks_at_the_limit_until_tasks_have_ended(
    make_pool: MakePool, gate: Gate, limit: SubmitLimit
) -> None:
    ctx = make_pool(1)
    result: list[Any] = []
    call = (pass_through, gate, b"x" * SIZE)
    thread = threading.Thread(target=submit_all, args=(ctx, 40, call, result))
    waits, wake = threading.Event(), limit.on_wait
    limit.on_wait = lambda: (waits.set(), wake())[1]
    thread.start()
    waits.wait()
    # Others aren't held up: what is there can be read, and actors can be made.
    assert ctx.get(ctx.put(5)) == 5
    assert limit._tasks <= 21
    assert result == []
    gate.open()
    thread.join()
    assert ctx.get(result) == [SIZE] * 40


def test_shutdown_frees_threads_that_wait_to_submit(
    make_pool: MakePool, gate: Gate, limit: SubmitLimit
) -> None:
    ctx = make_pool(1)
    result: list[Any] = []
    thread = threading.Thread(target=submit_all, args=(ctx, 40, (pass_through, gate, b"x" * SIZE), result))
    waits, wake = threading.Event(), limit.on_wait
    limit.on_wait = lambda: (waits.set(), wake())[1]
    thread.start()
    waits.wait()
    ctx.shutdown()
    thread.join()
    assert isinstance(result[-1], PoolClosedError)


def test_tasks_and_actors_submit_as_much_as_they_like(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    actor = ctx.create_actor(Greedy)
    assert ctx.get(actor.submit(b"x" * SIZE, 60)) == 60 * SIZE


def test_a_finalizer_that_submits_in_the_heads_thread_goes_on(
    make_pool: MakePool, gate: Gate, limit: SubmitLimit
) -> None:
    ctx = make_pool(1)
    blocked = [ctx.run(pass_through, gate, b"x" * SIZE) for _ in range(20)]
    assert limit.full
    refs: list[Any] = []
    dying = [Finalized(ctx, refs)]
    ctx._engine._owner._pool._head.call(lambda _: dying.clear())  # type: ignore[attr-defined]
    gate.open()
    assert ctx.get(blocked) == [SIZE] * 20
    assert ctx.get(refs) == [3]
