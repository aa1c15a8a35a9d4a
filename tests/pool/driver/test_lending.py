"""Whatever waits lends its CPUs, and nothing else: threads of tasks, threads that outlive them, actors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fray.job import ActorOptions, JobContext, TaskOptions, create_job_ctx, get_job_context
from fray.runtime.pool import state
from tests.behaviour.gates import Gate, append, lines
from tests.pool.chaos.inspection import settles

MakePool = Callable[[int], JobContext]


def double(number: int) -> int:
    return number * 2


def get_in_threads(count: int) -> list[int]:
    def get(number: int) -> int:
        ctx = get_job_context()
        return int(ctx.get(ctx.run(double, number)))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(get, range(count)))


def leave_a_thread(gate: Gate, story: Path) -> None:
    """End while a thread goes on, which then waits for a task."""

    def wait() -> None:
        gate.pass_through()
        ctx = get_job_context()
        append(story, str(ctx.get(ctx.run(double, 4))))

    threading.Thread(target=wait).start()


def leave_a_waiting_thread(gate: Gate, story: Path) -> None:
    """End while a thread waits for a task."""
    ctx = get_job_context()
    ref = ctx.run(Gate.pass_through, gate)
    began = threading.Event()

    def wait() -> None:
        began.set()
        ctx.wait([ref])
        append(story, "went on")

    threading.Thread(target=wait).start()
    began.wait()


def wait_beside(gate: Gate, story: Path) -> None:
    ctx = get_job_context()
    ctx.get(ctx.run(Gate.pass_through, gate))
    append(story, "holder ended")


class Getter:
    def get(self) -> int:
        ctx = get_job_context()
        return int(ctx.get(ctx.run(double, 2)))

    def get_in_threads(self) -> list[int]:
        return get_in_threads(4)


class Constructed:
    """Waits in its constructor, and later in a thread that none of its calls runs."""

    def __init__(self) -> None:
        self.first = Getter().get()

    def begin(self, gate: Gate, story: Path) -> int:
        threading.Thread(target=leave_a_thread, args=(gate, story)).start()
        return self.first


class Awaiter:
    async def get(self) -> int:
        ctx = get_job_context()
        return sum(await asyncio.gather(*[ctx.run(double, 2) for _ in range(3)]))


async def get_in_a_thread_of_the_loop(number: int) -> int:
    """Get in a thread that the loop keeps, also for the next task that it runs."""

    def get() -> int:
        ctx = get_job_context()
        return int(ctx.get(ctx.run(double, number)))

    return await asyncio.get_running_loop().run_in_executor(None, get)


def leave_a_future(gate: Gate) -> None:
    """End while a task that was asked for as a future runs."""
    get_job_context().run(Gate.pass_through, gate).future()


def test_threads_of_tasks_wait_for_tasks_where_there_is_one_worker(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    assert ctx.get([ctx.run(get_in_threads, 4) for _ in range(3)], timeout=60) == [[0, 2, 4, 6]] * 3


def test_a_thread_that_one_task_has_started_waits_for_the_next_one(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    for number in range(3):
        assert ctx.get(ctx.run(get_in_a_thread_of_the_loop, number), timeout=60) == number * 2


def test_the_constructor_and_the_threads_of_an_actor_that_holds_all_cpus_wait_for_tasks(
    make_pool: MakePool, gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    actor = ctx.create_actor(Constructed, options=ActorOptions(resources={"CPU": 1.0}))
    story = tmp_path / "story"
    assert ctx.get(actor.begin.remote(gate, story), timeout=60) == 4
    # Its own task is queued now, and waits for the CPU.
    held = ctx.run(double, 1)
    gate.open()
    assert settles(lambda: lines(story) == ["8"])
    assert ctx.get(held, timeout=60) == 2


def test_a_thread_that_outlives_its_task_gets_what_it_waits_for(
    make_pool: MakePool, gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    story = tmp_path / "story"
    ctx.get(ctx.run(leave_a_thread, gate, story), timeout=60)
    gate.open()
    while not lines(story):
        assert ctx.get(ctx.run(double, 1), timeout=60) == 2
    assert lines(story) == ["8"]


def test_a_task_that_ends_while_a_thread_of_it_waits_leaves_the_worker_sound(
    make_pool: MakePool, gate: Gate, tmp_path: Path
) -> None:
    ctx = make_pool(1)
    story = tmp_path / "story"
    ctx.get(ctx.run(leave_a_waiting_thread, gate, story), timeout=60)
    gate.open()
    while not lines(story):
        assert ctx.get([ctx.run(double, number) for number in range(50)], timeout=60)[-1] == 98
    assert ctx.get(ctx.run(get_in_threads, 2), timeout=60) == [0, 2]


def test_actors_that_hold_all_cpus_lend_them_while_they_wait(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    options = ActorOptions(resources={"CPU": 1})
    getters = [ctx.create_actor(Getter, options=options) for _ in range(2)]
    assert ctx.get([getter.get() for getter in getters], timeout=60) == [4, 4]
    assert ctx.get([getter.get_in_threads() for getter in getters], timeout=60) == [[0, 2, 4, 6]] * 2


def test_a_task_that_waits_for_what_idle_actors_keep_is_warned_about(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state, "STALL_SECONDS", 0.05)
    ctx = make_pool(1)
    keeper = ctx.create_actor(Getter, num_cpus=1)
    assert ctx.get(keeper.get(), timeout=60) == 4
    ref = ctx.run(double, 3)
    assert settles(lambda: "Getter (CPU: 1). Create them with less (num_cpus=0)" in caplog.text)
    ctx.kill(keeper)
    assert ctx.get(ref, timeout=60) == 6


def test_an_async_actor_that_holds_all_cpus_lends_them_while_it_awaits(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    actor = ctx.create_actor(Awaiter, options=ActorOptions(resources={"CPU": 1}))
    assert ctx.get([actor.get() for _ in range(3)], timeout=60) == [12] * 3


def test_a_task_that_ends_before_its_future_leaves_the_worker_sound(make_pool: MakePool, gate: Gate) -> None:
    ctx = make_pool(1)
    ctx.get(ctx.run(leave_a_future, gate), timeout=60)
    gate.open()
    assert ctx.get([ctx.run(double, number) for number in range(50)], timeout=60)[-1] == 98
    assert ctx.get(ctx.run(get_in_threads, 2), timeout=60) == [0, 2]


def test_a_task_that_waits_keeps_its_gpu(gate: Gate, tmp_path: Path) -> None:
    story = tmp_path / "story"
    gpu = TaskOptions(resources={"CPU": 1, "gpu": 1})
    with create_job_ctx("pool", max_workers=3, resources={"gpu": 1}) as ctx:
        holder = ctx.run(wait_beside, gate, story, options=gpu)
        other = ctx.run(append, story, "other began", options=gpu)
        for _ in range(20):
            assert ctx.get(ctx.run(double, 1), timeout=60) == 2
        gate.open()
        ctx.get([holder, other], timeout=60)
    assert lines(story) == ["holder ended", "other began"]
