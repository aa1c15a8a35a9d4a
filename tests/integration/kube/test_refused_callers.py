"""What only a real API server refuses: wrong objects, unknown callers, missing rights and namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from fray.kube.api import KubeApi
from fray.kube.errors import ForbiddenError, NotFoundError, RefusedError, UnauthorizedError
from fray.kube.resources import FRAYJOBS, LEASES, PODS
from tests.integration.kube.conftest import Kubernetes
from tests.integration.kube.objects import follow, frayjob, lease, read


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
