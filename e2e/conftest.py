"""One cluster with Fray in it for all tests; every test has its own namespace.

The cluster stays up for the next run, and so does the installation: `python -m e2e.cluster down` removes
both. What a failed test left in its namespace is printed before it is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator

import pytest

from e2e.cluster import provider
from e2e.cluster.api import Api
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.layout import Layout
from e2e.images import ENGINES_IMAGE, TEST_IMAGES
from e2e.installation import build_kubectl, build_release, load_images, open_cluster
from e2e.job_namespace import JobNamespace, open_job_namespace, remove_namespaces
from e2e.kubectl import Kubectl
from e2e.release import OPERATOR, SYSTEM, Release

TEST_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its time for itself: making the cluster and building images has limits of its own."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the cluster knows, while it is still there."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    if report.failed and report.when == "call":
        for name, fixture in fixtures.items():
            if isinstance(fixture, JobNamespace):
                report.sections.append((f"namespace {name}", fixture.describe()))
        if isinstance(release := fixtures.get("release"), Release):
            report.sections.append(("operator", _read_operator_logs(release)))
    return report


def _read_operator_logs(release: Release) -> str:
    try:
        return release.kubectl.within(SYSTEM)("logs", f"--selector={OPERATOR}", "--tail=60", "--prefix")
    except CommandError as error:  # no container of it has started yet
        return str(error)


@pytest.fixture(scope="session")
def stoppable_programs() -> None:
    """Skips tests that stop or kill programs of nodes, where this cluster's provider can't."""
    if "kill-program" not in provider.supported_faults():
        pytest.skip("neither kubelets nor pods of this cluster's provider can be stopped")


@pytest.fixture(scope="session")
def progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says at once what takes long, whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", end="", flush=True)

    return say


@pytest.fixture(scope="session", autouse=True)
def layout(progress: Callable[[str], None]) -> Layout:
    """The hosts of the cluster, which is up, before anything else, and is the tests' own.

    A machine that can't have one skips all scenarios and says why; with CI=true that is a failure.
    """
    try:
        return open_cluster(progress)
    except MachineError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no cluster on this machine: {error}")


@pytest.fixture(scope="session")
def api() -> Api:
    """The administrator's plain client, for what kubectl doesn't do."""
    return provider.connect()


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The administrator's kubectl."""
    kubectl = build_kubectl(tmp_path_factory.mktemp("kubectl"))
    remove_namespaces(kubectl)  # of a run that was killed
    yield kubectl
    remove_namespaces(kubectl)


@pytest.fixture(scope="session")
def cluster_wide(
    kubectl: Kubectl,
    layout: Layout,
    progress: Callable[[str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Release:
    """The chart as it is installed for a whole cluster; `release` makes sure that it is there."""
    archives = load_images(layout, progress)
    return build_release(kubectl, archives, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def engines_image(layout: Layout, progress: Callable[[str], None]) -> str:
    """The image with the packages of all engines, on the hosts; only tests that want it wait for it."""
    load_images(layout, progress, TEST_IMAGES)
    return ENGINES_IMAGE


@pytest.fixture(scope="session")
def _upgraded(cluster_wide: Release, progress: Callable[[str], None]) -> Release:
    """The installation of an earlier run, brought up to this checkout."""
    progress("installing the chart")
    cluster_wide.install()
    return cluster_wide


@pytest.fixture
def release(_upgraded: Release) -> Release:
    """The operator of this checkout, ready to work, whatever a test before did to it."""
    if not _upgraded.is_ready():
        _upgraded.install()
    return _upgraded


@pytest.fixture
def jobs(kubectl: Kubectl, release: Release) -> Iterator[JobNamespace]:
    """An empty namespace with the job account."""
    with open_job_namespace(kubectl, release) as space:
        yield space
