"""A Kubernetes cluster as its Python client sees it: a real API server, whose operator the tests play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.faulty_proxy import FaultyProxy
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from tests.integration.frayjobs import FrayJobs

NewCluster = Callable[..., KubernetesCluster]


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one: the workspace of requests that name no other."""
    folder = tmp_path / "working-directory"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def new_cluster(control_plane: ControlPlane, frayjobs: FrayJobs) -> Iterator[NewCluster]:
    """Makes clients of the test's namespace; `kubeconfig` is the administrator's unless given."""
    made: list[KubernetesCluster] = []

    def make(kubeconfig: Path = control_plane.kubeconfig, **parts: str) -> KubernetesCluster:
        spec = KubernetesSpec(**{"namespace": frayjobs.namespace, **parts})
        made.append(KubernetesCluster(spec, environ={"KUBECONFIG": str(kubeconfig)}))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(new_cluster: NewCluster) -> KubernetesCluster:
    """A client of the test's namespace."""
    return new_cluster()


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[FaultyProxy]:
    """A proxy before the API server."""
    with FaultyProxy(control_plane.endpoint) as running:
        yield running


@pytest.fixture
def proxied(
    proxy: FaultyProxy, control_plane: ControlPlane, tmp_path: Path, new_cluster: NewCluster
) -> KubernetesCluster:
    """A client that asks by way of the proxy."""
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=proxy.url, authority=endpoint.authority, token=endpoint.token)
    return new_cluster(write_kubeconfig(tmp_path / "proxied", content))
