"""What only contexts of one process promise, and the pure reading of the older spellings."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fray.job import ActorOptions, Lifetime, SyncContext, TaskOptions, ThreadContext
from fray.job.calls import Call, actor_options
from fray.job.local_actors import LocalActor
from fray.job.workers import ThreadWorkers
from tests.behaviour.gates import Gate, Signal


def test_an_interrupt_of_a_task_in_the_callers_thread_comes_at_once() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with SyncContext() as ctx, pytest.raises(KeyboardInterrupt):
        ctx.run(interrupt)


def test_threads_that_share_an_actor_call_it_one_after_another() -> None:
    came = threading.Event()
    story: list[str] = []

    class Shared:
        def first(self) -> None:
            story.append("first came")
            other.start()
            came.wait(0.1)  # as long as the second needs to come in, if nothing holds it up
            story.append("first left")

        def second(self) -> None:
            story.append("second came")
            came.set()

    with SyncContext() as ctx:
        actor = ctx.create_actor(Shared)
        other = threading.Thread(target=actor.second)
        ctx.get(actor.first())
        other.join()
    assert story == ["first came", "first left", "second came"]


def test_tasks_that_wait_for_their_arguments_take_no_threads(tmp_path: Path) -> None:
    gate, signal = Gate(tmp_path / "gate"), Signal(tmp_path / "signal")

    def block() -> int:
        signal.send()
        gate.pass_through()
        return 1

    with ThreadContext(2) as ctx:
        first = ctx.run(block)
        signal.wait()
        before = threading.active_count()
        refs = [ctx.run(abs, first) for _ in range(200)]
        assert ctx.get(ctx.run(len, "abc")) == 3  # its turn is after theirs
        assert threading.active_count() <= before + 1
        gate.open()
        assert ctx.get(refs) == [1] * 200


def test_an_idle_thread_keeps_nothing_of_its_work() -> None:
    class Kept:
        pass

    kept, done = Kept(), threading.Event()
    watched = weakref.ref(kept)
    workers = ThreadWorkers(1, name="idle")
    workers.submit(partial(isinstance, kept, Kept))
    workers.submit(done.set)
    del kept
    assert done.wait(60)  # the same thread has done both
    assert watched() is None
    workers.close()


def test_a_coroutine_of_an_actor_that_has_ended_is_closed() -> None:
    async def method() -> None:
        raise AssertionError

    actor = LocalActor("actor-1", Call(object, (), {}), ActorOptions(), own_threads=True)
    actor.end()
    coroutine = method()
    with pytest.raises(CancelledError):
        actor.start_coroutine(coroutine)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        coroutine.send(None)


def test_a_generator_in_the_callers_thread_has_no_time_limit() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2

    with SyncContext() as ctx:
        future: Any = ctx.create_task(items, options=TaskOptions(timeout=1e-9))
        assert list(future) == [1, 2]


def test_keywords_win_over_options_and_the_rest_stays() -> None:
    base = ActorOptions(
        name="of options", resources={"CPU": 4, "disk": 1}, lifetime=Lifetime.DETACHED, max_concurrency=7
    )
    unchanged = actor_options(
        base, name=None, get_if_exists=False, lifetime=None, preemptible=True, num_cpus=None
    )
    assert unchanged == base
    changed = actor_options(
        base, name="own", get_if_exists=True, lifetime="non_detached", preemptible=False, num_cpus=0
    )
    assert changed == ActorOptions(
        name="own",
        get_if_exists=True,
        resources={"CPU": 0, "disk": 1, "head_node": 0.0001},
        lifetime=Lifetime.EPHEMERAL,
        max_concurrency=7,
    )
    nothing = actor_options(
        None, name=None, get_if_exists=False, lifetime=None, preemptible=True, num_cpus=None
    )
    assert nothing == ActorOptions()
