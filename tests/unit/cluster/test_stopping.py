"""Asking a job to end while somebody else writes it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.changes import stop_job
from fray.kube.resources import FRAYJOBS
from fray.plan.lifecycle import describe_stop
from fray.testing import build_frayjob
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray.types import JobId
from fray.wire.frayjob import FrayJob


def test_each_conflict_is_followed_by_a_longer_pause() -> None:
    server, pauses = MemoryServer(), list[float]()
    job = server.store(FRAYJOBS, build_frayjob("job", metadata={"namespace": "ml"}).to_manifest())

    async def let_others_write(call: Call) -> None:
        if call.method == "PUT" and len(pauses) < 8:
            server.store(FRAYJOBS, job)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def close() -> None: ...

    api = MemoryApi(server, before=let_others_write)
    asyncio.run(stop_job(Access(cast("Any", api), "https://server", "ml", close), JobId("job"), sleep=sleep))
    (stopped,) = server.all(FRAYJOBS)
    assert stopped["spec"]["stopped"] is True
    assert describe_stop(FrayJob.from_manifest(stopped)) == "somebody asked for its end"
    assert len(pauses) == 8
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1]
