"""A cluster for actors, of which the test is a job's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, create_job_ctx
from tests.actors.cluster import Cluster, running_cluster
from tests.pool.transport.certificates import write_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def cluster(key: Path, tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(key, tmp_path) as made:
        yield made


@pytest.fixture
def context() -> Iterator[JobContext]:
    with create_job_ctx("threadpool", max_workers=4) as made:
        yield made
