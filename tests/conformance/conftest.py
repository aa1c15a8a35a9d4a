"""One suite for all backends: CONFORMANCE=local,threads says for which (default: those that need nothing)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pytest

from fray.cluster import Cluster
from tests.conformance.backends import BACKENDS, Backend

CHOSEN = [name for name in os.environ.get("CONFORMANCE", "local,threads").split(",") if name]


@pytest.fixture(scope="session", params=CHOSEN)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with BACKENDS[request.param](tmp_path_factory.mktemp(request.param)) as backend:
        yield backend
    assert not backend.find_left()


@pytest.fixture
def cluster(backend: Backend) -> Cluster:
    return backend.cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's job, which no other test has."""
    title = "".join(
        each if each.isalnum() else "-" for each in request.node.originalname.removeprefix("test_")
    )
    return f"{title[:40].strip('-')}-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:6]}".lower()
