"""What is read of a cluster to keep gangs together: of any Kueue there is, and only what a job can use.

What comes of a whole chain of Kueue's objects stands in the golden manifests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fray.kube.errors import ForbiddenError, ServerError
from fray.kube.resources import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NODES, TOPOLOGIES
from fray.kube.topology import read_topology
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology, QueueFlavor
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray.wire.frayjob import FrayJob

OLDER = 1


def job_of(**spec: Any) -> FrayJob:
    base = {"entrypoint": {"command": ["train"]}, "queue": {"name": "team"}, "replicas": 2}
    return FrayJob.from_manifest({"metadata": {"name": "train", "namespace": "ml"}, "spec": base | spec})


def store_queue(server: MemoryServer, *, version: int = 0) -> None:
    flavors = [{"coveredResources": ["pods"], "flavors": [{"name": "any"}]}]
    for resource, name, spec in (
        (LOCAL_QUEUES, "team", {"clusterQueue": "all"}),
        (CLUSTER_QUEUES, "all", {"resourceGroups": flavors}),
        (FLAVORS, "any", {"topologyName": "racks"}),
        (TOPOLOGIES, "racks", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}),
    ):
        metadata = {"name": name, **({"namespace": "ml"} if resource is LOCAL_QUEUES else {})}
        server.store(resource[version], {"metadata": metadata, "spec": spec})


def read(server: MemoryServer, job: FrayJob, error: Exception | None = None) -> ClusterTopology:
    async def refuse(_: Call) -> None:
        if error is not None:
            raise error

    return asyncio.run(read_topology(MemoryApi(server, before=refuse), job))


@pytest.mark.parametrize("version", [0, OLDER])
def test_a_queue_s_topology_is_read_in_the_version_that_there_is(version: int) -> None:
    server = MemoryServer()
    store_queue(server, version=version)
    assert read(server, job_of()).flavors == (QueueFlavor("any", levels=("rack", "kubernetes.io/hostname")),)


@pytest.mark.parametrize(
    "spec", [{"queue": None}, {"replicas": 1}], ids=["without a queue", "with nobody to be near"]
)
def test_nothing_is_asked_about_a_job_that_needs_no_answer(spec: dict[str, Any]) -> None:
    server = MemoryServer()
    assert read(server, job_of(**spec)) == NOTHING_READ
    assert server.calls == []


def test_a_cluster_without_kueue_has_no_topology() -> None:
    assert read(MemoryServer(), job_of()) == NOTHING_READ


def test_only_nodes_of_the_job_s_own_accelerator_form_its_slices() -> None:
    server = MemoryServer()
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu7x",
        "cloud.google.com/gke-tpu-partition-4x4x4-id": "a",
    }
    tpu = {"queue": None, "resources": {"tpu": {"type": "tpu7x-4x4x4"}}}
    server.store(NODES, {"metadata": {"name": "fixed", "labels": dict([*labels.items()][:1])}})
    assert not read(server, job_of(**tpu)).cubes
    server.store(NODES, {"metadata": {"name": "part", "labels": labels}})
    assert read(server, job_of(**tpu)).cubes
    assert not read(server, job_of(**tpu | {"resources": {"tpu": {"type": "tpu7x-2x2x2"}}})).cubes


def test_what_may_not_be_read_is_told_and_what_fails_is_tried_again() -> None:
    server, job = MemoryServer(), job_of(resources={"tpu": {"type": "tpu7x-4x4x4"}})
    refused = read(server, job, ForbiddenError("GET", 403, "Forbidden", "no"))
    assert [sentence.split(" can't be read")[0] for sentence in refused.unread] == [
        "whether queue team has a topology",
        "whether slices are formed on demand",
    ]
    with pytest.raises(ServerError):
        read(server, job, ServerError("GET", 503, "", "later"))
