"""Processes that a task forks: the pool is their parent's, and they are told so."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable

import pytest

from fray.job import JobContext, get_job_context

PATIENCE = 60.0


def use_context(_: int) -> str:
    try:
        get_job_context().put("x")
    except Exception as error:  # noqa: BLE001 - told by its name
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return "it was put"


def fork_and_use_context() -> list[str]:
    with multiprocessing.get_context("fork").Pool(1) as children:
        return children.map(use_context, [1, 2])


def test_a_child_that_a_task_forks_is_refused_the_pool(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(1)
    told = ctx.get(ctx.run(fork_and_use_context), timeout=PATIENCE)
    assert told == ["PoolClosedError: the parent process's pool is shut down"] * 2
    assert ctx.get(ctx.run(pow, 2, 2), timeout=PATIENCE) == 4


def fork_and_end(how: object) -> int:
    """Return the exit code of a child that ends by `how`: it exits with that, raises it, or returns."""
    child = os.fork()
    if not child:
        if isinstance(how, Exception):
            raise how
        if how != "return":
            sys.exit(how)  # type: ignore[arg-type]
        return 1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def fork_and_end_async(how: object) -> int:
    return fork_and_end(how)


class Forker:
    """An actor with an event loop, which forks a child when it is made, too."""

    def __init__(self) -> None:
        self.code = fork_and_end("return")

    def read_code(self) -> int:
        return self.code

    async def fork_async(self, how: object) -> int:
        return fork_and_end(how)

    def fork(self, how: object) -> int:
        return fork_and_end(how)


WAYS = {"return": 0, None: 0, 0: 0, 7: 7, "words": 1, ValueError("raised"): 1}


@pytest.mark.parametrize("fork", [fork_and_end, fork_and_end_async])
def test_a_child_that_a_task_forks_ends_as_it_says(
    make_pool: Callable[..., JobContext], fork: Callable[[object], int]
) -> None:
    ctx = make_pool(1)
    codes = [ctx.get(ctx.run(fork, how), timeout=PATIENCE) for how in WAYS]
    assert codes == list(WAYS.values())


def test_a_child_that_an_actor_with_an_event_loop_forks_ends_as_it_says(
    make_pool: Callable[..., JobContext],
) -> None:
    ctx = make_pool(1)
    forker = ctx.create_actor(Forker)
    assert ctx.get(forker.read_code.remote(), timeout=PATIENCE) == 0
    for method in (forker.fork_async, forker.fork):
        codes = [ctx.get(method.remote(how), timeout=PATIENCE) for how in WAYS]
        assert codes == list(WAYS.values())
