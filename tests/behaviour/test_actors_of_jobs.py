"""Actors that jobs share, where the suite runs in a job: callers in many processes, and creators that end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fray.cluster import Entrypoint, JobRequest, ResourceConfig, create_environment, current_cluster
from fray.job import ActorHandle, JobContext, get_default_job_ctx, get_job_context
from tests.behaviour.gates import Gate, Signal

pytestmark = pytest.mark.traits(fray_actors=True)
MOST = 1_000
"""Calls that an actor with async methods takes at once, unless it says otherwise."""
DYING_CREATOR = """
import os, signal
from fray.job import create_job_ctx

class Counter:
    value = 0
    def add(self):
        self.value += 1
        return self.value

ctx = create_job_ctx("threadpool")
of_job = ctx.create_actor(Counter, name="of-job")
of_none = ctx.create_actor(Counter, name="of-none", lifetime="detached")
print(ctx.get([of_job.add(), of_none.add()]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self) -> int:
        self.value += 1
        return self.value

    def add_to_all(self, others: list[ActorHandle[Counter]]) -> list[int]:
        return get_job_context().get([other.add() for other in others])

    def call(self, function: Callable[[], int]) -> int:
        return function()


class Crowd:
    """Knows how many are in it; the last one for whom there is room holds all until a gate opens."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.opened = asyncio.Event()

    async def enter(self, gate: Gate, full: Signal) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == MOST and not self.opened.is_set():
            await asyncio.to_thread(full.send)
            await asyncio.to_thread(gate.pass_through)
            self.opened.set()
        await self.opened.wait()
        self.inside -= 1
        return self.most


class Serial:
    """Knows how many calls run at once."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    def visit(self) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        threading.Event().wait(0.01)  # others may come in now, if they may at all
        self.inside -= 1
        return self.most


def test_ten_callers_at_once_meet_nobody_in_a_serial_actor(ctx: JobContext) -> None:
    serial = ctx.create_actor(Serial)
    with ThreadPoolExecutor(10) as callers:
        assert set(callers.map(lambda _: ctx.get(serial.visit()), range(10))) == {1}


def test_a_thousand_async_calls_run_at_once_and_the_next_one_waits(
    ctx: JobContext, gate: Gate, signal: Signal
) -> None:
    crowd = ctx.create_actor(Crowd)
    calls = [crowd.enter(gate, signal) for _ in range(MOST + 1)]
    signal.wait()
    assert ctx.wait(calls, timeout=0.1)[0] == []
    gate.open()
    assert set(ctx.get(calls)) == {MOST}


def test_handles_travel_in_a_list_and_in_a_closure(ctx: JobContext) -> None:
    first, second, third = (ctx.create_actor(Counter, start) for start in (0, 10, 20))
    assert ctx.get(first.add_to_all([second, third])) == [11, 21]

    def add_to_second() -> int:
        return get_job_context().get(second.add())  # type: ignore[no-any-return]

    assert ctx.get(first.call(add_to_second)) == 12
    assert ctx.get(ctx.run(add_to_second)) == 13


def test_two_jobs_under_one_root_share_an_actor_that_outlives_them(ctx: JobContext, tmp_path: Path) -> None:
    def count() -> int:
        counter = get_default_job_ctx().create_actor(Counter, 10, name="shared", get_if_exists=True)
        return counter.add().result()  # type: ignore[no-any-return]

    cluster, small = current_cluster(), ResourceConfig(cpu=0.1, ram="256Mi", disk="100Mi")
    jobs = [
        cluster.launch(JobRequest(name, Entrypoint.from_callable(count), small, create_environment(tmp_path)))
        for name in ("one", "other")
    ]
    cluster.wait(jobs, raise_on_failure=True)
    outcomes = [cluster.outcome(job) for job in jobs]
    assert sorted(outcome.result() for outcome in outcomes if outcome is not None) == [11, 12]
    assert ctx.get(ctx.get_actor("shared").add()) == 13


def test_a_creator_that_dies_leaves_its_actors_with_their_state(ctx: JobContext) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DYING_CREATOR], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (died.returncode, died.stdout) == (-9, "[1, 1]\n")
    of_job, of_none = ctx.get_actor("of-job"), ctx.get_actor("of-none")
    assert ctx.get([of_job.add(), of_none.add()]) == [2, 2]
    ctx.kill(of_none)
