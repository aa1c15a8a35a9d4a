"""What only a real API server does: it refuses wrong objects and unknown callers, merges and scales."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ConflictError, ForbiddenError, NotFoundError, RefusedError, UnauthorizedError
from fray.kube.resources import DEPLOYMENTS, FRAYJOBS, LEASES, PODS
from fray.runtime.api.client import ApiClient
from tests.integration.kube.conftest import Kubernetes, as_pod
from tests.integration.kube.objects import follow, frayjob, lease, read, version


def as_caller(kubernetes: Kubernetes, control_plane: ControlPlane, token: str, path: Path) -> Kubernetes:
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=endpoint.url, authority=endpoint.authority, token=token)
    return Kubernetes(kubernetes.api, write_kubeconfig(path, content))


def test_a_wrong_object_is_refused_and_not_made(kubernetes: Kubernetes) -> None:
    namespace = kubernetes.new_namespace()

    async def main(api: KubeApi) -> None:
        typo = frayjob("a", namespace)
        typo["spec"]["replica"] = 2
        with pytest.raises(RefusedError, match="unknown field"):
            await api.create(FRAYJOBS, typo)
        empty = {**frayjob("a", namespace), "spec": {}}
        with pytest.raises(RefusedError) as invalid:
            await api.create(FRAYJOBS, empty)
        assert (invalid.value.status, invalid.value.reason) == (422, "Invalid")
        with pytest.raises(NotFoundError):
            await api.get(FRAYJOBS, "a", namespace=namespace)

    kubernetes.run(main)


def test_a_missing_namespace_is_not_found(kubernetes: Kubernetes) -> None:
    async def main(api: KubeApi) -> None:
        with pytest.raises(NotFoundError, match="nowhere"):
            await api.create(LEASES, lease("a", "nowhere"))

    kubernetes.run(main)


def test_a_caller_that_the_server_doesnt_know_is_unauthorized_whatever_it_asks(
    kubernetes: Kubernetes, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def main(api: KubeApi) -> None:
        body = lease("a", "default")
        for request in (
            api.create(LEASES, body),
            api.replace(LEASES, body),
            api.get(LEASES, "a", namespace="default"),
            api.delete(LEASES, "a", namespace="default"),
            read(api, LEASES),
            follow(api, LEASES, 1, since="1"),
            api.read_log("a", namespace="default", container="main", tail_lines=1),
        ):
            with pytest.raises(UnauthorizedError) as unknown:
                await request
            assert (unknown.value.status, unknown.value.reason) == (401, "Unauthorized")

    as_caller(kubernetes, control_plane, "expired", tmp_path / "unknown").run(main)


def test_a_caller_without_a_right_is_told_which(
    kubernetes: Kubernetes, control_plane: ControlPlane, tmp_path: Path
) -> None:
    namespace = kubernetes.new_namespace()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert kubernetes.api.post(accounts, {"metadata": {"name": "nobody"}}).ok
    asked = kubernetes.api.post(f"{accounts}/nobody/token", {"spec": {}})

    async def main(api: KubeApi) -> None:
        with pytest.raises(ForbiddenError, match=r"nobody.* cannot create resource \"leases\""):
            await api.create(LEASES, lease("a", namespace))
        with pytest.raises(ForbiddenError, match=r"cannot list resource \"pods\""):
            await read(api, PODS)

    token = asked.body["status"]["token"]
    as_caller(kubernetes, control_plane, token, tmp_path / "nobody").run(main)


def test_pods_are_told_the_same(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    async def main(client: KubeApi) -> None:
        with pytest.raises(UnauthorizedError):
            await client.get(LEASES, "a", namespace="default")
        with pytest.raises(UnauthorizedError):
            await follow(client, LEASES, 1, since="1")
        typo = frayjob("a", "default")
        typo["spec"]["replica"] = 2
        (tmp_path / "token").write_text(control_plane.endpoint.token or "")
        with pytest.raises(RefusedError, match="unknown field"):
            await client.create(FRAYJOBS, typo)
        with pytest.raises(NotFoundError, match="nowhere"):
            await client.create(LEASES, lease("a", "nowhere"))

    as_pod(api, control_plane, tmp_path, token="expired").run(main)


def test_a_patch_changes_what_it_names_and_only_the_version_that_it_names(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pod = as_pod(api, control_plane, tmp_path)
    namespace, client = pod.new_namespace(), ApiClient(pod.access)
    created = client.create(FRAYJOBS, frayjob("a", namespace))
    changes: Manifest = {"spec": {"suspend": True}, "metadata": {"labels": {"x": "y"}}}
    patched = client.patch(FRAYJOBS, "a", changes, namespace=namespace)
    assert (patched["spec"]["suspend"], patched["metadata"]["labels"]) == (True, {"x": "y"})
    assert patched["spec"]["entrypoint"] == created["spec"]["entrypoint"]
    changes["metadata"]["resourceVersion"] = version(created)
    with pytest.raises(ConflictError):
        client.patch(FRAYJOBS, "a", changes, namespace=namespace)
    with pytest.raises(RefusedError) as unknown:
        client.patch(FRAYJOBS, "a", {"spec": {"replica": 2}}, namespace=namespace)
    assert unknown.value.status == 422
    with pytest.raises(NotFoundError):
        client.patch(FRAYJOBS, "b", {"spec": {"suspend": True}}, namespace=namespace)


def test_the_scale_of_an_object_is_read_and_written_apart(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pod = as_pod(api, control_plane, tmp_path)
    namespace, client = pod.new_namespace(), ApiClient(pod.access)
    container = {"name": "main", "image": "none"}
    labels = {"app": "a"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    client.create(DEPLOYMENTS, {"metadata": {"name": "a", "namespace": namespace}, "spec": spec})
    scale = client.patch(
        DEPLOYMENTS, "a", {"spec": {"replicas": 4}}, namespace=namespace, subresource="scale"
    )
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 4})
    assert client.get(DEPLOYMENTS, "a", namespace=namespace, subresource="scale") == scale
    assert client.get(DEPLOYMENTS, "a", namespace=namespace)["spec"]["replicas"] == 4
