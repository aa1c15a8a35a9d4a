"""A worker learns the head's address from a real API server, however late its pod comes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from fray.errors import HeadUnknownError
from fray.kube.objects import Manifest
from fray.kube.resources import PODS
from fray.runtime.api.client import ApiClient
from fray.runtime.api.head_address import HeadPod, await_head
from tests.integration.kube.conftest import as_pod

CONTAINER = {"name": "main", "image": "none"}


def pod(name: str, *, uid: str = "u", attempt: int = 1, index: int = 0, **more: str) -> Manifest:
    labels = {
        "fray.dev/job-uid": uid,
        "fray.dev/attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        **more,
    }
    spec = {"containers": [CONTAINER], "automountServiceAccountToken": False}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture
def client(api: Api, control_plane: ControlPlane, tmp_path: Path) -> ApiClient:
    known = as_pod(api, control_plane, tmp_path)
    namespace = known.new_namespace()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert api.post(accounts, {"metadata": {"name": "default"}}).ok  # no controller makes it here
    return ApiClient(replace(known.access, namespace=namespace))


def give_address(client: ApiClient, name: str, address: str) -> None:
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    client.patch(PODS, name, {"status": status}, namespace=client.namespace, subresource="status")


def test_the_pod_of_rank_0_is_waited_for_until_it_has_an_address(client: ApiClient) -> None:
    others = [
        pod("rank-1", index=1),
        pod("before", attempt=2),
        pod("another-job", uid="v"),
        pod("worker", **{"jobset.sigs.k8s.io/replicatedjob-name": "worker"}),
    ]
    for number, other in enumerate(others):
        client.create(PODS, other, namespace=client.namespace)
        give_address(client, other["metadata"]["name"], f"10.0.1.{number}")
    asked = threading.Event()

    def wait() -> HeadPod:
        asked.set()
        return await_head(client, job_uid="u", attempt=1, seconds=100.0)

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(wait)
        asked.wait()
        made = client.create(PODS, pod("head"), namespace=client.namespace)
        assert not found.done()
        give_address(client, "head", "10.0.0.1")
        assert found.result(timeout=100.0) == HeadPod(made["metadata"]["uid"], "10.0.0.1", ready=False)
    assert await_head(client, job_uid="u", attempt=1, seconds=100.0).address == "10.0.0.1"


def test_who_waits_in_vain_is_told_for_what(client: ApiClient) -> None:
    client.create(PODS, pod("head"), namespace=client.namespace)
    with pytest.raises(HeadUnknownError, match=r"after 1.5 s: pod head .* has no address yet: Pending"):
        await_head(client, job_uid="u", attempt=1, seconds=1.5)
