"""The API server of all integration tests, with JobSet's CRD, and for each test a namespace and an operator.

An operator of these tests serves one namespace, unless its test says otherwise, and retries at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import module_source
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.keep_alive import KeepAliveApi
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.faulty_proxy import FaultyProxy
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.wire.frayjob import FrayJob
from fray_operator.settings import OperatorSettings
from tests.integration.controller.hands import Hands
from tests.integration.controller.operator_subprocess import reserved_port
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.frayjobs import CRD_COLLECTION, await_served

NodeMaker = Callable[..., None]
SettingsFor = Callable[..., OperatorSettings]

WARM_UP = {"metadata": {"name": "warm-up"}, "spec": {"entrypoint": {"command": ["true"]}}}

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def admin(control_plane: ControlPlane, api: Api) -> Iterator[KeepAliveApi]:
    """The administrator of an API server that has the CRDs of Fray and JobSet."""
    client = KeepAliveApi(control_plane.api())
    path = module_source("jobset") / "charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml"
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))
    created = client.post(CRD_COLLECTION, crd)
    # Other folders' tests of the same session may have made it.
    assert created.status in (201, 409), created.body
    await_served(client, f"{CRD_COLLECTION}/{crd['metadata']['name']}")
    # The first JobSet takes the server seconds: it compiles the schema.
    jobset = build_attempt(FrayJob.from_manifest(WARM_UP), attempt=1, settings=PlanSettings()).jobset
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    warmed = client.request("POST", path, jobset, query={"dryRun": "All"})
    assert warmed.ok, warmed.body
    yield client
    client.close()


@pytest.fixture
def new_hands(admin: KeepAliveApi) -> Callable[[], Hands]:
    """Makes namespaces that nobody else uses, each with someone who plays its controllers."""

    def make() -> Hands:
        namespace = f"op-{next(_numbers)}"
        created = admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert created.status == 201, created.body
        return Hands(admin, namespace)

    return make


@pytest.fixture
def hands(new_hands: Callable[[], Hands]) -> Hands:
    """The controllers of a namespace that no other test uses."""
    return new_hands()


@pytest.fixture
def make_node(admin: KeepAliveApi) -> Iterator[NodeMaker]:
    """Makes ready nodes of a pool; those that are left are gone after the test."""
    names: list[str] = []

    def make(name: str, *, pool: str, labels: dict[str, str], taint: dict[str, str] | None = None) -> None:
        names.append(name)
        spec = {"taints": [taint]} if taint else {}
        body = {
            "metadata": {"name": name, "labels": {"cloud.google.com/gke-nodepool": pool, **labels}},
            "spec": spec,
        }
        assert admin.post("/api/v1/nodes", body).ok
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        assert admin.merge(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}}).ok
        # Admission taints new nodes until a controller has seen them ready.
        assert admin.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint] if taint else None}}).ok

    yield make
    for name in names:
        assert admin.delete(f"/api/v1/nodes/{name}").status in (200, 404)


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The administrator's kubeconfig, for the operator and for kopf."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    return control_plane.kubeconfig


@pytest.fixture
def settings_for() -> SettingsFor:
    """Makes settings of an operator of one namespace, with a Lease that no other operator uses."""

    def make(namespace: str, **settings: Any) -> OperatorSettings:
        chosen: dict[str, Any] = {
            "namespaces": (namespace,),
            "lease_namespace": namespace,
            "lease_name": f"lease-{next(_numbers)}",
            # A machine that stops the test's process for some seconds must not cost it the lease.
            "lease_seconds": 60.0,
            "http_host": "127.0.0.1",
            "http_port": 0,
            "backoff_seconds": 0.05,
            "settle_seconds": 0.2,
        }
        return OperatorSettings(**chosen | settings)

    return make


@pytest.fixture
def operator(kubeconfig: Path, hands: Hands, settings_for: SettingsFor) -> Iterator[OperatorThread]:
    """An operator of the test's namespace."""
    with run_operator(kubeconfig, settings_for(hands.namespace)) as running:
        yield running


@pytest.fixture
def new_port() -> Iterator[Callable[[], int]]:
    """Gives ports of loopback for operators to listen at; no other process gets them before."""
    with ExitStack() as held:
        yield lambda: held.enter_context(reserved_port())


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[FaultyProxy]:
    """A proxy before the API server."""
    with FaultyProxy(control_plane.endpoint) as running:
        yield running


@pytest.fixture
def proxied(
    proxy: FaultyProxy, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The administrator's kubeconfig by way of the proxy, for the operator and for kopf."""
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=proxy.url, authority=endpoint.authority, token=endpoint.token)
    path = write_kubeconfig(tmp_path / "proxied", content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path
