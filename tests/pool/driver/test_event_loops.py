"""Coroutines that block their event loop stop nothing but themselves: no loop is shared."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from fray.errors import TaskRaisedError
from fray.job import ActorOptions, create_job_ctx, get_job_context


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


async def raise_it(error: BaseException) -> None:
    raise error


class Raiser:
    def __init__(self) -> None:
        self.begun = 0

    def raise_plainly(self, error: BaseException) -> None:
        raise error

    async def raise_it(self, error: BaseException) -> None:
        raise error

    async def begin(self) -> int:
        self.begun += 1
        return self.begun

    async def cancel_the_next(self) -> None:
        while len(asyncio.all_tasks()) == 1:  # noqa: ASYNC110 - not one turn of the loop later
            await asyncio.sleep(0)
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()


@pytest.mark.parametrize("kind", ["pool", "threadpool"])
def test_a_stop_iteration_of_a_plain_method_beside_async_ones_arrives(kind: str) -> None:
    with create_job_ctx(kind, max_workers=1) as ctx:
        raiser = ctx.create_actor(Raiser)
        with pytest.raises(TaskRaisedError) as caught:
            ctx.get(raiser.raise_plainly(StopIteration(3)), timeout=60)
        assert repr(caught.value.__cause__) == "StopIteration(3)"


@pytest.mark.parametrize("kind", ["pool", "threadpool"])
def test_a_cancellation_that_nobody_asked_for_is_an_error(kind: str) -> None:
    with create_job_ctx(kind, max_workers=1) as ctx:
        raiser = ctx.create_actor(Raiser)
        for function in (raiser.raise_plainly, raiser.raise_it, partial(ctx.run, raise_it)):
            with pytest.raises(TaskRaisedError) as caught:
                ctx.get(function(asyncio.CancelledError("own")), timeout=60)
            assert type(caught.value.__cause__) is asyncio.CancelledError
            assert caught.value.__cause__.args == ("own",)
        assert ctx.get(raiser.begin(), timeout=60) == 1


@pytest.mark.parametrize("kind", ["pool", "threadpool"])
def test_a_call_ends_whose_coroutine_is_cancelled_before_it_begins(kind: str) -> None:
    with create_job_ctx(kind, max_workers=2) as ctx:
        raiser = ctx.create_actor(Raiser, options=ActorOptions(max_concurrency=2))
        cancelling = raiser.cancel_the_next()
        with pytest.raises(TaskRaisedError, match="CancelledError"):
            ctx.get(raiser.begin(), timeout=60)
        ctx.get(cancelling, timeout=60)
        assert ctx.get(raiser.begin(), timeout=60) == 1
