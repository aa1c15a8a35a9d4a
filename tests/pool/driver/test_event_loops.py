"""Coroutines that block their event loop stop nothing but themselves: no loop is shared."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fray.job import create_job_ctx, get_job_context


async def leaf() -> int:
    return 1


async def get_a_task() -> int:
    ctx = get_job_context()
    return int(ctx.get(ctx.run(leaf)))


async def get_in_a_thread() -> int:
    return int(await asyncio.to_thread(lambda: get_job_context().get(get_job_context().run(leaf))))


async def give_what_a_task_gave() -> AsyncIterator[int]:
    yield int(get_job_context().get(get_job_context().run(get_a_task)))


class Asker:
    def __init__(self, other: Any = None) -> None:
        self.other = other
        self.loop = asyncio.get_running_loop()
        self.came = 0
        self.all_came = asyncio.Event()

    async def ask(self) -> str:
        return str(get_job_context().get(self.other.answer()))

    async def answer(self) -> str:
        return "yes"

    async def get_a_task(self) -> int:
        return await get_a_task()

    async def meet(self, number: int) -> int:
        self.came += 1
        if self.came == number:
            self.all_came.set()
        await self.all_came.wait()
        return self.came

    def is_on_its_loop(self) -> bool:
        return asyncio.get_running_loop() is self.loop

    def process(self) -> int:
        return os.getpid()


def test_async_tasks_that_wait_for_async_tasks_need_one_worker() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        assert ctx.get([ctx.run(get_a_task) for _ in range(4)], timeout=60) == [1] * 4
        assert ctx.get(ctx.run(get_in_a_thread), timeout=60) == 1
        assert ctx.get(ctx.run(give_what_a_task_gave), timeout=60) == [1]


def test_async_actors_wait_for_each_other_and_for_tasks_in_one_process() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        first = ctx.create_actor(Asker)
        second = ctx.create_actor(Asker, first)
        assert len(set(ctx.get([first.process(), second.process()]))) == 1
        assert ctx.get(second.ask(), timeout=60) == "yes"
        assert ctx.get(second.get_a_task(), timeout=60) == 1


def test_an_async_actor_takes_many_calls_at_once_and_all_in_its_loop() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        actor = ctx.create_actor(Asker)
        assert ctx.get([actor.meet(500) for _ in range(500)], timeout=60) == [500] * 500
        assert ctx.get(actor.is_on_its_loop())
