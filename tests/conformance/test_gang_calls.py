"""Gang calls of earlier APIs: a function on each host of TPU slices, and what each of them returned.

The test cluster has two node pools of v5p-16. Ray runs a job on one node, and the suite's node has a v5p-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fray import current_identity
from fray.cluster import Cluster, ClusterContext, JobId, KubernetesCluster, RayCluster
from fray.legacy.gang_calls import run_on_pod
from fray.legacy.tpu_topology import TpuRunConfig
from fray.types import Resource, RuntimeEnv
from tests.conformance.jobs import PATIENCE, RefusedError, launch, read_until, run, stay, until
from tools.images import project_version

SMALL = (Resource("CPU", 0.05), Resource("memory", 512 << 20))
"""All pods may share two cores."""


def surroundings_of(cluster: Cluster) -> RuntimeEnv:
    """On the test cluster, the image that its TPU nodes have: e2e/node_images.py."""
    image = f"fray-digits:{project_version()}" if isinstance(cluster, KubernetesCluster) else None
    return RuntimeEnv(minimum_resources=SMALL, container_image=image)


def slices_of(cluster: Cluster) -> tuple[str, int]:
    return ("v5p-8", 1) if isinstance(cluster, RayCluster) else ("v5p-16", 2)


def tell_host() -> tuple[int, int, int]:
    identity = current_identity()
    return identity.slice, identity.host, identity.rank


def refuse_at(rank: int) -> Callable[[Any], None]:
    def refuse(_: Any) -> None:
        if current_identity().rank == rank:
            raise RefusedError("of one host", rank)

    return refuse


def call_gang(function: Callable[[], Any], tpu: str, slices: int, surroundings: RuntimeEnv) -> list[Any]:
    return run_on_pod(function, tpu, num_slices=slices, max_retries_failure=0, runtime_env=surroundings)


def find_child(cluster: Cluster, parent: str) -> JobId | None:
    return next((info.job_id for info in cluster.list_jobs() if info.parent == parent), None)


@pytest.mark.usefixtures("launching")
def test_a_gang_call_of_a_job_is_its_child_and_returns_a_value_of_each_host(
    cluster: Cluster, name: str
) -> None:
    tpu, slices = slices_of(cluster)
    found = run(cluster, name, call_gang, tell_host, tpu, slices, surroundings_of(cluster))
    hosts = [(0, 0, 0)] if slices == 1 else [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]
    assert found == hosts
    assert find_child(cluster, name) is not None


def test_a_gang_call_raises_what_one_host_raised(cluster: Cluster) -> None:
    tpu, slices = slices_of(cluster)
    last = 0 if slices == 1 else 3
    config = TpuRunConfig(tpu, slices, max_retries_failure=0)
    with pytest.raises(RefusedError) as caught:
        ClusterContext(cluster).run_on_tpu(refuse_at(last), config, surroundings_of(cluster))
    assert caught.value.code == last


@pytest.mark.usefixtures("launching")
def test_a_gang_call_ends_with_the_job_that_made_it(cluster: Cluster, name: str) -> None:
    if isinstance(cluster, RayCluster):
        pytest.skip("children of a Ray job run on: docs/ray.md")
    job = launch(cluster, name, call_gang, stay, *slices_of(cluster), surroundings_of(cluster))
    until(lambda: find_child(cluster, name) is not None)
    child = find_child(cluster, name)
    assert child is not None
    read_until(cluster, child, "ready")
    cluster.terminate(job)
    ended = cluster.wait([job, child], timeout=PATIENCE)
    assert [info.status for info in ended] == ["stopped", "stopped"]
