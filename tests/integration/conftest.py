"""One real API server with Fray's CRDs for all tests that need one; every test has its own namespace.

No controllers run: nothing is garbage-collected, and a deleted namespace stays behind until the server ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import CONTROL_PLANE, build
from e2e.cluster.controlplane import ControlPlane
from tests.integration.frayjobs import CRD_COLLECTION, FrayJobs, await_served

CRDS = Path(__file__).parents[2] / "crds"
TIMEOUT_SECONDS = 900
"""Of a test that has no limit of its own: only what hangs takes so long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder their limit."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(build(CONTROL_PLANE)) as running:
        yield running


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """The administrator's client of a server that has Fray's CRDs."""
    client = control_plane.api()
    for path in sorted(CRDS.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        created = client.post(CRD_COLLECTION, crd)
        assert created.status == 201, created.body
        await_served(client, f"{CRD_COLLECTION}/{crd['metadata']['name']}")
    return client


_numbers = itertools.count(1)


@pytest.fixture
def frayjobs(api: Api) -> FrayJobs:
    """The FrayJobs of a namespace that no other test uses."""
    namespace = f"test-{next(_numbers)}"
    created = api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert created.status == 201, created.body
    return FrayJobs(api, namespace)
