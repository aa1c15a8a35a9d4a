"""A task that takes more memory than it asked for ends, and its neighbours don't."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fray.errors import ActorDiedError, WorkerDiedError
from fray.job import ActorOptions, JobContext, TaskOptions, get_job_context
from fray.runtime.control_groups import MemoryGroup, find_parent, own_group
from fray.runtime.pool.host.processes import descendants
from fray.runtime.pool.worker.memory_limit import LOOK_SECONDS, MemoryLimit, private_bytes
from tests.behaviour.gates import Gate, Signal
from tests.pool.chaos.inspection import nanny_of, pool_of, settles
from tests.pool.hosts.pools import ROOT

MB = 1_000_000
PAGE_OUT = 21
"""`MADV_PAGEOUT` of madvise(2), which Python's `mmap` has no name for."""
LIMIT = {"CPU": 1.0, "memory": 100.0 * MB}


def take(size: int, gate: Gate) -> int:
    taken = bytearray(b"x") * size
    gate.pass_through()
    return len(taken)


class Taker:
    def take(self, size: int, gate: Gate) -> int:
        return take(size, gate)


def test_a_task_that_takes_more_than_it_asked_for_ends_with_the_reason(ctx: JobContext, gate: Gate) -> None:
    options = TaskOptions(resources=LIMIT, retries=0, name="greedy")
    modest = ctx.run(take, 30 * MB, gate, options=replace(options, name="modest"))
    greedy = ctx.run(take, 300 * MB, gate, options=options)
    with pytest.raises(WorkerDiedError) as caught:
        ctx.get(greedy)
    assert caught.value.task == "greedy"
    assert " MB of memory, and asked for 100 MB" in caught.value.story[-1]
    gate.open()
    assert ctx.get(modest) == 30 * MB


def hold(size: int) -> int:
    """Take so much for longer than it takes until a process is looked at."""
    taken = bytearray(b"x") * size
    time.sleep(10 * LOOK_SECONDS)
    return len(taken)


def wait_for_much(size: int) -> int:
    ctx = get_job_context()
    return ctx.get(ctx.run(hold, size, options=TaskOptions(retries=0)))


def test_who_takes_more_than_it_asked_for_costs_nobody_else(
    make_pool: Callable[[int], JobContext], gate: Gate
) -> None:
    ctx = make_pool(1)
    half = {"CPU": 0.5}
    neighbours = [
        ctx.run(take, 300 * MB, gate, options=TaskOptions(resources=half, retries=0)),
        ctx.run(take, 10, gate, options=TaskOptions(resources={"CPU": 0.0}, retries=0)),
        ctx.run(take, 20, gate, options=TaskOptions(resources={"CPU": 0.1, "memory": 100.0 * MB}, retries=0)),
    ]
    limited = TaskOptions(resources={**half, "memory": 100.0 * MB}, retries=0)
    greedy = ctx.run(take, 300 * MB, gate, options=limited)
    # It has its memory until it is seen to: the gate is closed.
    with pytest.raises(WorkerDiedError):
        ctx.get(greedy)
    gate.open()
    assert ctx.get(neighbours) == [300 * MB, 10, 20]


def test_a_limit_counts_nothing_of_what_the_task_waits_for(make_pool: Callable[[int], JobContext]) -> None:
    ctx = make_pool(1)
    options = TaskOptions(resources=LIMIT, retries=0)
    assert ctx.get(ctx.run(wait_for_much, 300 * MB, options=options)) == 300 * MB


def test_an_actor_that_takes_more_than_it_asked_for_ends(ctx: JobContext, gate: Gate) -> None:
    actor = ctx.create_actor(Taker, options=ActorOptions(resources={"memory": LIMIT["memory"]}))
    with pytest.raises(ActorDiedError, match="MB of memory, and asked for 100 MB"):
        ctx.get(actor.take.remote(300 * MB, gate))


def take_with_the_lock(size: int) -> int:
    """Take so much, and keep Python's lock for longer than a test may take."""
    taken = bytearray(b"x") * size
    ctypes.PyDLL(None).sleep(600)
    return len(taken)


def test_code_that_keeps_the_lock_of_python_is_seen_to(ctx: JobContext) -> None:
    with pytest.raises(WorkerDiedError, match="MB of memory, and asked for 100 MB"):
        ctx.get(ctx.run(take_with_the_lock, 300 * MB, options=TaskOptions(resources=LIMIT, retries=0)))


def test_each_task_of_a_process_counts_from_its_own_start(make_pool: Callable[[int], JobContext]) -> None:
    ctx = make_pool(1)
    options = TaskOptions(resources=LIMIT, retries=0)
    kept = [ctx.get(ctx.run(keep, 60 * MB, options=options)) for _ in range(3)]
    assert len({pid for pid, _ in kept}) == 1
    assert [size for _, size in kept] == [60 * MB, 120 * MB, 180 * MB]


_KEPT: list[bytearray] = []


def keep(size: int) -> tuple[int, int]:
    """Take so much and keep it after the task."""
    _KEPT.append(bytearray(b"x") * size)
    time.sleep(4 * LOOK_SECONDS)
    return os.getpid(), sum(map(len, _KEPT))


@pytest.mark.parametrize(
    "check", ["check_limit_without_a_group", "check_private_memory", "check_swapped_memory"]
)
def test_the_memory_of_a_process_is_what_it_has_for_itself(check: str) -> None:
    # In a process of its own: in this one, what earlier tests have left may be freed meanwhile.
    subprocess.run([sys.executable, "-c", f"from {__name__} import {check}; {check}()"], check=True, cwd=ROOT)


def check_limit_without_a_group() -> None:
    """A limit without a group counts the process itself."""
    began, wake = os.pipe()
    limit = MemoryLimit(wake)
    limit.enter()
    limit.begin(100 * MB)
    assert os.read(began, 10) == b"m"
    few = bytearray(b"x") * (50 * MB)
    assert limit.exceeded(os.getpid()) is None
    many = bytearray(b"x") * (150 * MB)
    exceeded = limit.exceeded(os.getpid())
    assert exceeded is not None
    assert exceeded.allowed == 100 * MB
    assert 190 * MB < exceeded.taken < 300 * MB, (len(few), len(many))
    limit.end()
    assert limit.exceeded(os.getpid()) is None
    assert limit.close() == ""


def check_private_memory() -> None:
    """What a process takes is its own."""
    before = private_bytes(os.getpid())
    taken = bytearray(b"x") * (64 * MB)
    after = private_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 60 * MB, len(taken)


def check_swapped_memory() -> None:
    """What the kernel has moved to a swap device is still taken."""
    before = private_bytes(os.getpid())
    with mmap.mmap(-1, 64 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
        taken.write(b"x" * len(taken))
        taken.madvise(PAGE_OUT)  # without a swap device, it stays
        after = private_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 60 * MB


# --- where control groups can be had -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def parent() -> MemoryGroup:
    """Where the pools of this module make their groups."""
    own = own_group()
    found = find_parent(own, descendants) if own is not None else None
    if found is None:
        pytest.skip("no control group can be made here")
    return found


def take_in_a_child(size: int, pids: str) -> int:
    code = f"import time; taken = bytearray(b'x') * {size}; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    Path(pids).write_text(str(child.pid))
    return child.wait()


def test_what_a_task_starts_counts(ctx: JobContext, parent: MemoryGroup, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    options = TaskOptions(resources=LIMIT, retries=0)
    with pytest.raises(WorkerDiedError, match="MB of memory, and asked for 100 MB"):
        ctx.get(ctx.run(take_in_a_child, 300 * MB, str(pids), options=options))
    assert settles(lambda: not Path("/proc", pids.read_text()).exists())


def make_objects(count: int, size: int) -> list[object]:
    ctx = get_job_context()
    return [ctx.put(bytes(size)) for _ in range(count)]


def test_objects_that_a_task_makes_do_not_count(ctx: JobContext, parent: MemoryGroup) -> None:
    refs = ctx.get(ctx.run(make_objects, 20, 20 * MB, options=TaskOptions(resources=LIMIT, retries=0)))
    assert [len(ctx.get(ref)) for ref in refs] == [20 * MB] * 20


def take_later(signal_of_task: Signal, size: int, gate: Gate) -> int:
    signal_of_task.send()
    gate.pass_through()
    return len(bytearray(b"x") * size)


def test_the_kernel_ends_a_task_that_nobody_can_look_at(
    make_pool: Callable[..., JobContext], parent: MemoryGroup, gate: Gate, signal_of_task: Signal
) -> None:
    ctx = make_pool(memory=64 * MB)
    nanny = nanny_of(pool_of(ctx))
    options = TaskOptions(resources=LIMIT, retries=0)
    neighbour = ctx.run(take, 300 * MB, gate)
    greedy = ctx.run(take_later, signal_of_task, 900 * MB, gate, options=options)
    signal_of_task.wait()
    (folder,) = parent.folder.glob(f"fray-{nanny}-*")
    os.kill(nanny, signal.SIGSTOP)
    try:
        group = MemoryGroup(folder, parent.version)
        gate.open()
        assert settles(lambda: group.oom_kills() == 1)
    finally:
        os.kill(nanny, signal.SIGCONT)
    with pytest.raises(WorkerDiedError, match="took much more memory than the 100 MB it asked for"):
        ctx.get(greedy)
    assert ctx.get(neighbour) == 300 * MB
    ctx.shutdown()
    assert not list(parent.folder.glob(f"fray-{nanny}-*"))


def test_no_limit_of_a_task_before_holds_for_the_next(
    make_pool: Callable[..., JobContext], parent: MemoryGroup, gate: Gate, signal_of_task: Signal
) -> None:
    ctx = make_pool(1, memory=32 * MB)
    nanny = nanny_of(pool_of(ctx))
    small, large = ({"CPU": 1.0, "memory": size * MB} for size in (10.0, 300.0))
    assert ctx.get(ctx.run(len, b"abc", options=TaskOptions(resources=small, retries=0))) == 3
    os.kill(nanny, signal.SIGSTOP)
    try:
        options = TaskOptions(resources=large, retries=0)
        later = ctx.run(take_later, signal_of_task, 180 * MB, gate, options=options)
        signal_of_task.wait()
        gate.open()
        assert ctx.get(later) == 180 * MB
    finally:
        os.kill(nanny, signal.SIGCONT)


def leave_a_child(pids: str, gate: Gate) -> None:
    if (child := os.fork()) == 0:
        os.setsid()
        gate.pass_through()
        taken = bytearray(b"x") * (90 * MB)
        Path(pids).write_text(str(len(taken)))
        time.sleep(600)
        os._exit(0)
    assert child


def wait_for_it(signal_of_task: Signal, pids: str) -> bool:
    signal_of_task.send()
    there = settles(lambda: Path(pids).exists())
    time.sleep(4 * LOOK_SECONDS)
    return there


def test_what_an_earlier_task_left_does_not_count(
    make_pool: Callable[[int], JobContext],
    parent: MemoryGroup,
    gate: Gate,
    signal_of_task: Signal,
    tmp_path: Path,
) -> None:
    ctx = make_pool(1)
    options = TaskOptions(resources={"CPU": 1.0, "memory": 40.0 * MB}, retries=0)
    ctx.get(ctx.run(leave_a_child, str(tmp_path / "taken"), gate, options=options))
    after = ctx.run(wait_for_it, signal_of_task, str(tmp_path / "taken"), options=options)
    signal_of_task.wait()
    gate.open()
    assert ctx.get(after)
