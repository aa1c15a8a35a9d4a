"""Asking a job to end while somebody else writes it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.changes import stop_job
from fray.kube.errors import ConflictError
from fray.types import JobId
from tests.unit.cluster.local_jobs import frayjob


class Api:
    """A server on which others write a job, this many times just before it is replaced."""

    def __init__(self, conflicts: int) -> None:
        self.left = conflicts
        self.stored = frayjob().to_manifest()

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        return self.stored

    async def replace(self, _: object, manifest: dict[str, Any]) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ConflictError("PUT /frayjobs/job", 409, "Conflict", "it was changed")
        self.stored = manifest


def test_each_conflict_is_followed_by_a_longer_pause() -> None:
    api, pauses = Api(conflicts=8), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def close() -> None: ...

    asyncio.run(stop_job(Access(cast("Any", api), "https://server", "ml", close), JobId("job"), sleep=sleep))
    assert api.stored["spec"]["stopped"] is True
    assert len(pauses) == 8
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1]
