"""The page of a job's pool, read through an API server, and of pools of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.running_hosts import read_pool
from fray.cluster.local.pools import read_pool as read_local_pool
from fray.errors import HostNotRunningError, PoolNotShownError
from fray.job.pool import start_pool
from fray.kube.errors import ForbiddenError
from fray.kube.resources import FRAYJOBS
from fray.runtime.pool.state import PoolState
from fray.runtime.pool.view import PoolView
from fray.testing import build_frayjob
from fray.testing import build_pod as build_any_pod
from fray.types import JobId
from tests.unit.kube.scripted_server import connect, status_of

PAGE = PoolView.build(PoolState().stats(), job="train", seconds=1.0, rates={"submitted": 0.0, "ended": 0.0})
PROXY = "/api/v1/namespaces/ml/pods/pod-0:7099/proxy/pool.json"


def read(answer: web.Response, *, state: str = "running", workers: dict[str, Any] | None = None) -> PoolView:
    """Read the pool of a job with one host, whose pod is in that state and answers so."""
    told = {"attempts": [{"number": 1}]}
    workers = {"replicas": 1} if workers is None else workers
    job = build_frayjob(metadata={"namespace": "ml", "uid": "u-1"}, status=told, workers=workers)
    pod = build_any_pod(0, "Running", {state: {"exitCode": 0}}, name="pod-0", hosts=1, attempt=1)

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == FRAYJOBS.path(namespace="ml", name="train"):
            return web.json_response(job.to_manifest())
        if request.path.endswith("/pods"):
            return web.json_response(
                {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod]}
            )
        assert request.path == PROXY
        return answer.__class__(status=answer.status, body=answer.body, content_type=answer.content_type)

    async def no_pause(_: float) -> None: ...

    async def main() -> PoolView:
        async with connect(handle) as api:
            access = Access(api, "https://server", "ml", api.close)
            return await read_pool(access, JobId("train"), sleep=no_pause)

    return asyncio.run(main())


def test_the_page_comes_from_the_head_in_the_pod_of_rank_0() -> None:
    assert read(web.Response(text=PAGE.to_json())) == PAGE


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (web.Response(status=503, text="error trying to reach service"), "doesn't answer"),
        (web.Response(status=404, text="Not Found"), "doesn't answer"),
        (web.Response(text="<html>hello</html>"), "answers something else"),
        (web.Response(text='{"hosts": 3}'), "answers something else"),
    ],
)
def test_a_head_that_shows_no_page_is_told(answer: web.Response, problem: str) -> None:
    with pytest.raises(PoolNotShownError, match=problem):
        read(answer)


def test_jobs_without_a_pool_of_ours_are_told_why() -> None:
    with pytest.raises(PoolNotShownError, match="names no workers"):
        read(web.Response(), workers={"maxReplicas": 0})
    with pytest.raises(PoolNotShownError, match="engine is ray"):
        read(web.Response(), workers={"replicas": 1, "engine": "ray"})


def test_a_host_that_has_ended_has_no_pool() -> None:
    with pytest.raises(HostNotRunningError, match="exit code 0"):
        read(web.Response(), state="terminated")


def test_a_missing_right_is_named() -> None:
    refused = status_of(403, "Forbidden", 'User "eve" cannot get resource "pods/proxy" in API group ""')
    with pytest.raises(ForbiddenError, match="pods/proxy"):
        read(web.json_response(refused, status=403))


# --- of this machine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["thread", "process"])
def test_a_pool_of_this_machine_is_found_by_its_job(monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    monkeypatch.setenv("FRAY_JOB_NAME", name := f"local-{os.getpid()}-{head}")
    with start_pool(1, head=head) as ctx:
        assert ctx.get(ctx.run(len, "four")) == 4
        view = read_local_pool(JobId(name))
        assert (view.job, view.counters["done"], view.functions[0].name) == (name, 1, "len")
        with pytest.raises(PoolNotShownError, match="none of the processes"):
            read_local_pool(JobId("another"), directories=[Path(ctx.metrics_address).parent])
    with pytest.raises(PoolNotShownError, match="none of the processes"):
        read_local_pool(JobId(name))
