"""The cluster of users' tests: programs launch and read jobs on it, and tests say how those fare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.cluster import Entrypoint, JobRequest, create_cluster, create_environment
from fray.cluster.kubernetes import KubernetesCluster
from fray.kube.errors import ConflictError, NotFoundError, ServerError
from fray.kube.resources import CONFIG_MAPS, FRAYJOBS, SECRETS
from fray.runtime.api.scale import set_replicas
from fray.testing import FakeCluster, build_end
from fray.types import JobStatus
from tests.fake_pods import client_of_pod

REQUEST = JobRequest(
    name="train",
    entrypoint=Entrypoint.from_callable(print),
    environment=create_environment(docker_image="train:1"),
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster(namespace="ml") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


@pytest.fixture
def cluster(fake: FakeCluster) -> Iterator[KubernetesCluster]:
    del fake  # which KUBECONFIG names
    with create_cluster("k8s") as made:
        assert isinstance(made, KubernetesCluster)
        yield made


def test_a_program_launches_a_job_and_hears_how_it_ends(
    fake: FakeCluster, cluster: KubernetesCluster
) -> None:
    job = cluster.launch(REQUEST)
    (made,) = fake.all()
    (secret,) = fake.all(SECRETS)
    assert secret["metadata"]["name"] == made["spec"]["entrypoint"]["callable"]["secretName"]
    assert cluster.poll(job).status is JobStatus.PENDING
    fake.set_status(job, **build_end("Failed", "NonZeroExit", "exit code 3 of host 1"))
    ended = cluster.wait(job, raise_on_failure=False)
    assert (ended.status, ended.error_message) == (JobStatus.FAILED, "exit code 3 of host 1")
    cluster.terminate(job)
    fake.remove(FRAYJOBS, job)
    assert (fake.all(), fake.all(SECRETS), cluster.list_jobs()) == ([], [], [])


def test_a_program_meets_what_a_test_lets_go_wrong(fake: FakeCluster, cluster: KubernetesCluster) -> None:
    fake.fault = lambda call: ServerError(str(call), 500, "InternalError", "etcd is full")
    with pytest.raises(Exception, match="etcd is full"):
        cluster.list_jobs()
    fake.fault = lambda _: None
    assert cluster.list_jobs() == []
    assert {call.method for call in fake.calls} == {"LIST"}


def test_merge_patches_change_fields_of_one_version_and_scales(fake: FakeCluster) -> None:
    client = client_of_pod(fake)
    first = fake.store(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}})
    seen = {"resourceVersion": first["metadata"]["resourceVersion"]}
    changed = client.patch(CONFIG_MAPS, "a", {"metadata": seen, "data": {"x": None}}, namespace="ml")
    assert changed["data"] == {"y": "2"}
    with pytest.raises(ConflictError):
        client.patch(CONFIG_MAPS, "a", {"metadata": seen, "data": {"x": "3"}}, namespace="ml")
    job = fake.store(FRAYJOBS, {"metadata": {"name": "train"}, "spec": {"workers": {"maxReplicas": 8}}})
    assert set_replicas(client, "train", job["metadata"]["uid"], 4)
    found = fake.find(FRAYJOBS, "train")
    assert found is not None
    assert found["spec"]["workers"] == {"maxReplicas": 8, "replicas": 4}
    with pytest.raises(NotFoundError):
        client.patch(CONFIG_MAPS, "b", {"data": {}}, namespace="ml")


def test_the_example_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs/testing.md").read_text(encoding="utf-8")
    (example,) = [
        block for block in re.findall(r"```python\n(.*?)```", guide, re.S) if "FakeCluster" in block
    ]
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_why_a_job_failed_is_told"](monkeypatch)


def test_no_uid_is_given_in_two_clusters() -> None:
    uids = []
    for _ in range(2):
        with FakeCluster() as cluster:
            uids.append(cluster.store(CONFIG_MAPS, {"metadata": {"name": "same"}})["metadata"]["uid"])
    assert uids[0] != uids[1]
