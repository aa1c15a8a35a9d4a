"""Ending a job: `spec.stopped` of its FrayJob, which stays with its status."""

from __future__ import annotations

import asyncio
from itertools import count

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.retries import BUSY, Sleep, persistently
from fray.kube.api import Manifest
from fray.kube.errors import ConflictError
from fray.kube.resources import FRAYJOBS
from fray.plan.status import is_finished
from fray.types import JobId
from fray.wire.frayjob import FrayJob

__all__ = ["stop_job"]


async def stop_job(access: Access, name: JobId, *, sleep: Sleep = asyncio.sleep) -> None:
    """Ask a job to end; nothing is written where it has, or was asked before. Raises `ApiError`.

    A conflict means that somebody else has just written the job, mostly the operator. There is no limit to
    how often that may be, only longer pauses.
    """

    async def stop() -> bool:
        manifest = await access.api.get(FRAYJOBS, name, namespace=access.namespace)
        job = FrayJob.from_manifest(manifest)
        if job.spec.stopped or is_finished(job.status):
            return True
        stopped: Manifest = {**manifest, "spec": {**manifest["spec"], "stopped": True}}
        try:
            await access.api.replace(FRAYJOBS, stopped)
        except ConflictError:
            return False  # the operator was faster
        return True

    # A write whose answer was lost is seen by the next look.
    for conflicts in count(1):
        if await persistently(stop):
            return
        await sleep(BUSY.pause(conflicts))
