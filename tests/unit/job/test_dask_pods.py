"""Engine dask in pods: which workers its scheduler asks to go when there is less work."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

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
        assert workers.stand("busy")[3] == 1
        let_go.set()
        assert await client.gather([task, held]) == [True, 144]


def test_idle_workers_go_and_hand_over_and_none_that_has_a_task_or_an_actor() -> None:
    asyncio.run(release_all_but_those_at_work())
