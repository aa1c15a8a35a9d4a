"""Engine dask in pods: which workers its scheduler asks to go when there is less work."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest
from distributed import Client, Scheduler, Worker

from fray.job.dask_pods import Workers

begun, let_go = threading.Event(), threading.Event()


def work() -> bool:
    begun.set()
    return let_go.wait()


class Counter:
    """An actor."""


async def release_all_but_those_at_work() -> None:
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            Scheduler(protocol="inproc", dashboard=False, dashboard_address=":0")
        )
        workers = Workers(scheduler)
        for name in ("busy", "idle", "actor", "holding"):
            worker = Worker(scheduler.address, name=name, nthreads=1, dashboard=False)
            await stack.enter_async_context(worker)
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        stack.callback(let_go.set)
        held = client.submit(pow, 12, 2, workers="holding")
        counter = client.submit(Counter, actor=True, workers="actor")
        await held
        await counter
        task = client.submit(work, workers="busy", pure=False)
        await asyncio.to_thread(begun.wait)

        workers.release(4)
        assert workers.count_workers() == 2
        workers.release(4)  # nobody is asked twice
        await asyncio.gather(*workers._retiring)
        assert {worker.name for worker in scheduler.workers.values()} == {"busy", "actor"}
        gone = {name: workers.stand(name)[2] for name in ("busy", "idle", "actor", "holding")}
        assert gone == {"busy": False, "idle": True, "actor": False, "holding": True}
        let_go.set()
        assert await client.gather([task, held]) == [True, 144]


async def ask_for_what_only_some_workers_have(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            Scheduler(protocol="inproc", dashboard=False, dashboard_address=":0")
        )
        workers = Workers(scheduler)
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        asked = [{"GPU": 1}, {"GPU": 3}, {"GPU": 3}, {"license": 1}]
        futures = [client.submit(pow, 12, n, resources=each) for n, each in enumerate(asked)]
        while len(scheduler.unrunnable) < len(asked):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        offered = (("CPU", 1.0), ("GPU", 2.0), ("memory", 1e9))
        assert workers.find_unheld(offered) == {(("GPU", 3),): 2, (("license", 1),): 1}
        assert workers.find_unheld(()) == {}
        for _ in range(3):
            assert workers.count_wanted(offered) == 1
        told = [line for line in caplog.messages if line.startswith("No worker can ever hold")]
        assert len(told) == 2
        assert "GPU: 3 (each has GPU: 2), for which 2 tasks" in told[0]
        worker = Worker(scheduler.address, resources={"license": 1}, nthreads=1, dashboard=False)
        await stack.enter_async_context(worker)
        assert await futures[3] == 12**3
        assert workers.find_unheld(offered) == {(("GPU", 3),): 2}


def test_what_no_worker_can_ever_hold_asks_for_none_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.run(ask_for_what_only_some_workers_have(caplog))


def test_idle_workers_go_and_hand_over_and_none_that_has_a_task_or_an_actor() -> None:
    asyncio.run(release_all_but_those_at_work())
