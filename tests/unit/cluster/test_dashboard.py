"""The dashboard of a job's engine: in which pod and at which port it is, and which jobs have none."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.running_hosts import DASHBOARD_PORTS, find_dashboard
from fray.errors import PoolNotShownError
from fray.kube.resources import FRAYJOBS, PODS
from fray.testing import build_frayjob, build_pod
from fray.testing.memory import MemoryApi, MemoryServer
from fray.types import JobId
from fray.vocabulary import POOL_PORTS


def find(workers: dict[str, Any]) -> tuple[str, str]:
    """Find the dashboard of a job with one host and such workers."""
    status = {"attempts": [{"number": 1}]}
    job = build_frayjob(metadata={"namespace": "ml", "uid": "u-1"}, status=status, workers=workers)

    server = MemoryServer()
    uid = server.store(FRAYJOBS, job.to_manifest())["metadata"]["uid"]
    pod = build_pod(0, "Running", {"running": {}}, name="pod-0", hosts=1, attempt=1, job_uid=uid)
    server.store(PODS, {**pod, "metadata": {**pod["metadata"], "namespace": "ml"}})

    async def close() -> None: ...

    access = Access(cast("Any", MemoryApi(server)), "https://server", "ml", close)
    return asyncio.run(find_dashboard(access, JobId("train")))


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_it_is_in_the_pod_of_rank_0(engine: str) -> None:
    assert find({"replicas": 1, "engine": engine}) == (engine, "pod-0")


def test_the_ports_are_those_of_the_engines() -> None:
    assert {"dask": POOL_PORTS[1], "ray": 8265} == DASHBOARD_PORTS


@pytest.mark.parametrize(
    ("workers", "problem"),
    [({"maxReplicas": 0}, "names no workers"), ({"replicas": 1}, "`fray top train` shows its pool")],
)
def test_jobs_without_a_dashboard_are_told_why(workers: dict[str, Any], problem: str) -> None:
    with pytest.raises(PoolNotShownError, match=problem):
        find(workers)
