"""API servers with the chart installed: one to share, one for a test that changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.chart.chart_cluster import Cluster, install, running_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests that only add to it."""
    with running_cluster(tmp_path_factory.mktemp("helm")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with a cluster-wide installation, in a namespace that demands restricted pods."""
    cluster.create_namespace("fray-system", **{"pod-security.kubernetes.io/enforce": "restricted"})
    install(cluster)
    return cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with an installation, for a test that changes or removes it."""
    with running_cluster(tmp_path / "helm") as cluster:
        cluster.create_namespace("fray-system")
        install(cluster)
        yield cluster
