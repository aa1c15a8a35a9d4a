"""The page that the head of a job's pool shows, read through the API server."""

from __future__ import annotations

import asyncio

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.executing import choose_pod
from fray.cluster.kubernetes.results import list_pods, read_job
from fray.cluster.kubernetes.retries import Sleep, persistently
from fray.errors import PoolNotShownError
from fray.kube.errors import NotFoundError, ServerError, UnreachableError
from fray.plan.workers import has_workers
from fray.runtime.pool.view import PoolView
from fray.types import JobId
from fray.vocabulary import POOL_METRICS_PORT, POOL_VIEW_PATH
from fray.wire.frayjob import FrayJobSpec

__all__ = ["read_pool"]


async def read_pool(access: Access, job_id: JobId, *, sleep: Sleep = asyncio.sleep) -> PoolView:
    """Return what the pool of a job has and does now; needs the verb `get` on `pods/proxy`.

    Raises:
        JobNotFoundError: There is no such job.
        HostNotRunningError: Its rank 0 doesn't run.
        PoolNotShownError: It has no pool, or the head doesn't answer.
        ApiError: The cluster can't be asked.
    """
    job = await read_job(access, job_id)
    if problem := _find_problem(job.spec):
        raise PoolNotShownError(job_id, problem)
    pod = choose_pod(job, await list_pods(access, job), 0)

    async def read() -> bytes:
        return await access.api.read_page(
            pod, namespace=access.namespace, port=POOL_METRICS_PORT, path=POOL_VIEW_PATH
        )

    try:
        return PoolView.from_json(await persistently(read, sleep=sleep))
    except (NotFoundError, ServerError, UnreachableError) as error:
        if not error.status:
            raise  # the API server is silent, and not the pod
        raise PoolNotShownError(job_id, f"its head doesn't answer: {error.detail}") from error
    except ValueError as error:
        raise PoolNotShownError(job_id, f"its head answers something else: {error}") from error


def _find_problem(spec: FrayJobSpec) -> str:
    if not has_workers(spec):
        return "it names no workers"
    if spec.workers.engine != "fray":
        return f"its engine is {spec.workers.engine}, which has a dashboard of its own"
    return ""
