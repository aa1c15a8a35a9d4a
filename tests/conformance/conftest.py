"""One suite for all backends: CONFORMANCE=local,threads,isolated,ray,kubernetes says for which.

By default those that need nothing. A machine that can't have a cluster skips `kubernetes` and says why; with
CI=true that is a failure.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.cluster.errors import MachineError
from fray.cluster import Cluster
from tests.conformance.backends import BACKENDS, Backend
from tests.conformance.jobs import until

TEST_SECONDS = 900
CHOSEN = [name for name in os.environ.get("CONFORMANCE", "local,threads").split(",") if name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its time for itself: making a cluster and building images has limits of its own."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the backend knows, while it is still there."""
    report = yield
    backend = getattr(item, "funcargs", {}).get("backend")
    if report.failed and report.when == "call" and isinstance(backend, Backend):
        report.sections.append(("backend", backend.describe()))
    return report


@pytest.fixture(scope="session", params=CHOSEN)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with ExitStack() as stack:
        try:
            backend = stack.enter_context(BACKENDS[request.param](tmp_path_factory.mktemp(request.param)))
        except MachineError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no cluster on this machine: {error}")
        yield backend
        await_nothing_left(backend)


def await_nothing_left(backend: Backend) -> None:
    """Processes of jobs that were closed with their cluster, or with a test, end a moment later."""
    until(lambda: not backend.find_left())


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one: it is the workspace of requests that name no other, and goes along with each."""
    folder = tmp_path / "working-directory"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cluster(backend: Backend) -> Cluster:
    return backend.cluster


@pytest.fixture
def launching(backend: Backend) -> None:
    """For tests whose jobs launch jobs."""
    if not backend.launches_jobs:
        pytest.skip("the client's packages are not where jobs run")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's job, which no other test has."""
    title = "".join(
        each if each.isalnum() else "-" for each in request.node.originalname.removeprefix("test_")
    )
    return f"{title[:40].strip('-')}-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:6]}".lower()
