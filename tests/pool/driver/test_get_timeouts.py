"""A `GetTimeoutError` tells the seconds that the caller of that very `get` has given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fray.errors import GetTimeoutError
from fray.job import JobContext, get_job_context
from tests.behaviour.gates import Gate

HERE = 0.25
"""Seconds that nothing can be done in: what is waited for comes after the gate was opened."""


class Waiter:
    def wait(self, gate: Gate, kind: str) -> Any:
        return wait(gate, kind)


def wait(gate: Gate, kind: str) -> Any:
    ctx = get_job_context()
    blocked = ctx.run(gate.pass_through)
    return ctx.get(blocked if kind == "one" else [blocked, ctx.put(1)], timeout=HERE)


def give(gate: Gate) -> Iterator[int]:
    yield 1
    gate.pass_through()


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_that_of_an_actor_or_a_task_keeps_its_own(
    make_pool: Callable[[int], JobContext], gate: Gate, kind: str, timeout: float | None
) -> None:
    ctx = make_pool(2)
    for ref in (ctx.create_actor(Waiter).wait.remote(gate, kind), ctx.run(wait, gate, kind)):
        for asked in (ref, [ref]):
            with pytest.raises(GetTimeoutError) as caught:
                ctx.get(asked, timeout=timeout)
            assert caught.value.seconds == HERE


def test_that_of_the_driver_tells_the_whole_time(make_pool: Callable[[int], JobContext], gate: Gate) -> None:
    ctx = make_pool(2)
    done, blocked, stream = ctx.put(1), ctx.run(gate.pass_through), ctx.run(give, gate)
    for asked in (blocked, [done, blocked], stream, [done, stream]):
        with pytest.raises(GetTimeoutError) as caught:
            ctx.get(asked, timeout=HERE)
        assert caught.value.seconds == HERE
