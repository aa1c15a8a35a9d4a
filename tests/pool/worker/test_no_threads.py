"""Where no thread can be started, that costs one task, call or actor, and says why."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from fray.errors import ThreadStartError
from fray.job import ActorOptions, create_job_ctx, get_job_context


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """Let no thread be started in this process, as where its limit is reached."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    start = threading.Thread.start
    threading.Thread.start = refuse  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def get_nested() -> int:
    ctx = get_job_context()
    return int(ctx.get(ctx.run(abs, -1)))


def get_nested_without_threads() -> int:
    with no_threads():
        return get_nested()


def fill(count: int) -> list[str]:
    """Submit tasks that find no thread, behind each other, and return how they ended."""
    ctx = get_job_context()
    ended = []
    with no_threads():
        for ref in [ctx.run(abs, -1) for _ in range(count)]:
            try:
                ended.append(str(ctx.get(ref)))
            except ThreadStartError as error:
                ended.append(error.reason.partition(";")[0])
    return ended


class Host:
    """Has a sibling constructed, or called, in its own process while no thread can be started there."""

    def construct(self) -> str:
        ctx = get_job_context()
        with no_threads():
            try:
                return str(ctx.get(ctx.create_actor(Host).hello()))
            except ThreadStartError as error:
                return error.message

    def hello(self) -> str:
        return "hello"


def test_a_task_that_finds_no_thread_fails_alone() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        with pytest.raises(ThreadStartError, match=r"abs.*can't start new thread"):
            ctx.get(ctx.run(get_nested_without_threads), timeout=60)
        assert ctx.get(ctx.run(get_nested), timeout=60) == 1
        assert ctx.stats().workers_lost == 0


def test_each_of_many_tasks_ends_one_way_or_the_other() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        ended = ctx.get(ctx.run(fill, 20), timeout=60)
        assert set(ended) <= {"1", "can't start new thread"}
        assert ctx.get(ctx.run(get_nested), timeout=60) == 1
        assert ctx.stats().workers_lost == 0


def test_an_actor_that_finds_no_thread_ends_alone() -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        host = ctx.create_actor(Host, options=ActorOptions(max_concurrency=1))
        assert "can't start new thread" in ctx.get(host.construct(), timeout=60)
        assert ctx.get(host.hello(), timeout=60) == "hello"
