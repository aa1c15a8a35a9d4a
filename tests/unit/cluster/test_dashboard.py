"""The dashboard of a job's engine: in which pod and at which port it is, and which jobs have none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.running_hosts import DASHBOARD_PORTS, find_dashboard
from fray.errors import PoolNotShownError
from fray.kube.resources import FRAYJOBS
from fray.testing import build_frayjob, build_pod
from fray.types import JobId
from fray.vocabulary import POOL_PORTS
from tests.unit.kube.scripted_server import connect


def find(workers: dict[str, Any]) -> tuple[str, str]:
    """Find the dashboard of a job with one host and such workers."""
    status = {"attempts": [{"number": 1}]}
    job = build_frayjob(metadata={"namespace": "ml", "uid": "u-1"}, status=status, workers=workers)
    pod = build_pod(0, "Running", {"running": {}}, name="pod-0", hosts=1, attempt=1)

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == FRAYJOBS.path(namespace="ml", name="train"):
            return web.json_response(job.to_manifest())
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod]})

    async def main() -> tuple[str, str]:
        async with connect(handle) as api:
            return await find_dashboard(Access(api, "https://server", "ml", api.close), JobId("train"))

    return asyncio.run(main())


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
