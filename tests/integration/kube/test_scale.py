"""A job's pod sets the number of its workers on a real API server, with the right to its scale alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from fray.kube.errors import ConflictError, NotFoundError
from fray.kube.resources import FRAYJOBS
from fray.runtime.api.client import ApiClient
from fray.runtime.api.scale import set_replicas
from tests.integration.kube.conftest import as_pod
from tests.integration.kube.objects import frayjob, version


def test_a_job_sets_its_own_scale(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    known = as_pod(api, control_plane, tmp_path)
    namespace = known.new_namespace()
    client = ApiClient(replace(known.access, namespace=namespace))
    job = frayjob("train", namespace)
    job["spec"]["workers"] = {"replicas": 0, "maxReplicas": 8}
    made = client.create(FRAYJOBS, job)
    uid = made["metadata"]["uid"]
    assert set_replicas(client, "train", uid, 4)
    assert not set_replicas(client, "train", uid, 4)
    assert client.get(FRAYJOBS, "train", namespace=namespace)["spec"]["workers"]["replicas"] == 4
    # The server refuses a version that is old: a successor of that name is never scaled.
    stale = {"metadata": {"resourceVersion": version(made)}, "spec": {"replicas": 7}}
    with pytest.raises(ConflictError):
        client.patch(FRAYJOBS, "train", stale, namespace=namespace, subresource="scale")
    client.delete(FRAYJOBS, "train", namespace=namespace)
    client.create(FRAYJOBS, job)
    with pytest.raises(NotFoundError, match="another one now"):
        set_replicas(client, "train", uid, 2)
    client.delete(FRAYJOBS, "train", namespace=namespace)
    with pytest.raises(NotFoundError):
        set_replicas(client, "train", uid, 2)
