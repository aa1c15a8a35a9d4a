"""Gangs of each kind of hardware: every host finds the others by what Fray puts into its environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.api import Api
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, build_job, build_shell, place

ALL_REDUCE = (Path(__file__).parent / "programs" / "all_reduce.py").read_text(encoding="utf-8")
TOPOLOGY = "cloud.google.com/gke-tpu-topology"


def results(logs: list[str]) -> list[dict[str, int]]:
    """What `all_reduce.py` printed on each host."""
    return [json.loads(log.splitlines()[-1]) for log in logs]


def test_a_cpu_gang_adds_up_over_the_coordinator_in_the_default_image(jobs: JobNamespace) -> None:
    """No image is named, so it is the chart's runtime image, which has Python and Fray."""
    status = jobs.run(build_job("sum", ["python3", "-c", ALL_REDUCE, "fray"], replicas=3))
    assert status["phase"] == "Succeeded", status
    assert results(jobs.logs("sum")) == [{"rank": rank, "world_size": 3, "sum": 6} for rank in range(3)]
    assert status["replicas"] == {"total": 3, "pending": 0, "running": 0, "succeeded": 3, "failed": 0}


def test_gpu_hosts_add_up_over_the_given_master_address(jobs: JobNamespace, layout: Layout) -> None:
    command = ["python3", "-c", ALL_REDUCE, "torch"]
    gpu = {"type": "nvidia-h100-80gb", "count": 8}
    status = jobs.run(build_job("train", command, replicas=2, resources={"gpu": gpu}))
    assert status["phase"] == "Succeeded", status
    assert results(jobs.logs("train")) == [{"rank": rank, "world_size": 2, "sum": 3} for rank in range(2)]
    assert {pod["spec"]["nodeName"] for pod in jobs.pods("train")} == {
        host.name for host in layout.pool("gpu")
    }


@pytest.fixture
def single_hosts(api: Api, layout: Layout) -> Iterator[set[str]]:
    """Names of two nodes of a pool of single-host v5p-8 slices, which are one v5p-16 slice otherwise."""
    names = {host.name for host in layout.pool("tpu-b")}
    paths = [f"/api/v1/nodes/{name}" for name in names]
    before = [api.get(path).body["metadata"]["labels"][TOPOLOGY] for path in paths]
    try:
        for path in paths:
            assert api.merge(path, {"metadata": {"labels": {TOPOLOGY: "2x2x1"}}}).ok
        yield names
    finally:
        for path, topology in zip(paths, before, strict=True):
            assert api.merge(path, {"metadata": {"labels": {TOPOLOGY: topology}}}).ok


def test_slices_of_one_host_may_share_a_pool_and_know_their_number(
    jobs: JobNamespace, single_hosts: set[str]
) -> None:
    tpu = {"type": "v5p-8", "multislice": "Enabled"}  # GKE documents it for slices of several hosts only
    script = 'echo "$MEGASCALE_SLICE_ID of $MEGASCALE_NUM_SLICES at $MEGASCALE_COORDINATOR_ADDRESS"'
    status = jobs.run(build_shell("slices", script, replicas=2, resources={"tpu": tpu}))
    assert status["phase"] == "Succeeded", status
    pods = jobs.pods("slices")
    assert [place(pod) for pod in pods] == [(0, 0), (1, 0)]
    assert {pod["spec"]["nodeName"] for pod in pods} == single_hosts
    first = "slices-a1-slice-0-0.slices-a1"
    assert jobs.logs("slices") == [f"{index} of 2 at {first}\n" for index in range(2)]
