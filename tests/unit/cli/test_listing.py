"""`fray list --watch`: what is new or has changed, as it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.cli.listing import Choice, show_jobs, watch_jobs
from fray.cli.streams import OutputStream
from fray.cluster import create_cluster
from fray.kube.resources import FRAYJOBS
from fray.testing import FakeCluster, build_end, build_frayjob


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster(namespace="ml") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


def watch(choice: Choice, looks: list[Callable[[], object]], printed: Path) -> list[list[str]]:
    """Return the words of each line that is printed, while before each look one of these happens."""
    happens = iter(looks)

    def sleep(_: float) -> None:
        step = next(happens, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    with create_cluster("k8s") as cluster, printed.open("w") as file:
        output = OutputStream(file.fileno(), environ={})
        listed = show_jobs(choice, None, cluster=cluster, output=output, notes=output)
        with pytest.raises(KeyboardInterrupt):
            watch_jobs(choice, listed, cluster=cluster, output=output, sleep=sleep)
    return [line.split() for line in printed.read_text().splitlines()]


def test_jobs_that_are_new_or_have_changed_are_printed_without_a_heading(
    fake: FakeCluster, tmp_path: Path
) -> None:
    fake.store(FRAYJOBS, build_frayjob("first").to_manifest())
    fake.store(FRAYJOBS, build_frayjob("idle").to_manifest())
    lines = watch(
        Choice(),
        [
            lambda: None,
            lambda: fake.store(FRAYJOBS, build_frayjob("second").to_manifest()),
            lambda: fake.set_status("first", **build_end("Failed", "NonZeroExit", "exit code 3")),
            lambda: None,
        ],
        tmp_path / "printed",
    )
    assert [line[0] for line in lines] == ["NAME", "first", "idle", "second", "first"]
    assert "Failed" in lines[-1]


def test_only_jobs_of_the_phases_that_were_asked_for_are_watched(fake: FakeCluster, tmp_path: Path) -> None:
    fake.store(FRAYJOBS, build_frayjob("first").to_manifest())
    lines = watch(
        Choice.of(["failed"], None),
        [
            lambda: fake.store(FRAYJOBS, build_frayjob("second").to_manifest()),
            lambda: fake.set_status("first", **build_end("Failed", "NonZeroExit", "exit code 3")),
        ],
        tmp_path / "printed",
    )
    assert lines[0][:2] == ["no", "jobs"]
    assert [line[0] for line in lines[1:]] == ["first"]
