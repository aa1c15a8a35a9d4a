"""Cancelled calls that a host remembers: none is forgotten before its time, and none is kept for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from fray.job.cancelled import CancelledCalls


def test_the_calls_that_were_cancelled_last_are_remembered() -> None:
    calls = CancelledCalls(most=2)
    for call in ("a", "b", "b", "c"):
        calls.add(call)
    assert [call in calls for call in ("a", "b", "c")] == [False, True, True]
    calls.discard("b")
    calls.discard("b")
    assert "b" not in calls
    assert len(calls) == 1


def test_an_actor_on_dask_does_not_keep_each_call_that_never_comes() -> None:
    from fray.job.dask_host import ActorHost  # noqa: PLC0415 - it loads Dask

    host: Any = ActorHost(None, None, None, None)  # type: ignore[arg-type]

    async def cancel() -> None:
        for number in range(10_100):
            await host.cancel(number)

    asyncio.run(cancel())
    assert len(host._cancelled) == 10_000
    assert 10_099 in host._cancelled
