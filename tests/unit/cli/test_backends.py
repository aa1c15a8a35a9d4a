"""Which backend a command means, and what each does beyond handing on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fray.cli.backend import choose_cluster
from fray.cli.exit_codes import derive_error_exit_code
from fray.cli.kubernetes_backend import _Told
from fray.cli.local_backend import LocalBackend
from fray.cluster.cluster_spec import KubernetesSpec, LocalSpec
from fray.cluster.kubernetes.whole_jobs import fill_in
from fray.cluster.local.store import StateDirectory
from fray.errors import ClusterSpecError, JobNotFoundError, WaitTimeoutError
from fray.types import JobId, LogLine
from fray.wire.frayjob import Parent
from tests.unit.cli.test_words import finished
from tests.unit.cluster.local_jobs import frayjob, held_locks

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_the_command_line_comes_before_the_variable() -> None:
    environ = {"FRAY_CLUSTER_SPEC": "k8s?namespace=ml&queue=tpu"}
    assert choose_cluster(None, None, environ={}) == LocalSpec()
    assert choose_cluster(None, None, environ=environ) == KubernetesSpec(namespace="ml", queue="tpu")
    assert choose_cluster(None, "dev", environ=environ) == KubernetesSpec(namespace="dev", queue="tpu")
    assert choose_cluster("local", None, environ=environ) == LocalSpec()
    with pytest.raises(ClusterSpecError, match="has no namespaces"):
        choose_cluster("local", "dev", environ=environ)
    with pytest.raises(ClusterSpecError, match="namespace is 'A B'"):
        choose_cluster("k8s", "A B", environ={})


def line(number: int, *, rank: int = 0, at: float | None = None) -> LogLine:
    moment = START + timedelta(seconds=number if at is None else at)
    return LogLine(JobId("job"), 1, rank, 0, rank, f"{rank}: {number}", moment)


def texts(lines: Iterable[LogLine]) -> list[str]:
    return [each.text for each in lines]


def test_what_was_told_before_is_not_told_again() -> None:
    told = _Told.of([line(1), line(2), line(1, rank=1)])
    again = [line(1), line(1, rank=1), line(2), line(3), line(2, rank=1), line(1, rank=2)]
    assert texts(told.skip(again)) == ["0: 3", "1: 2", "2: 1"]


def test_a_line_of_the_same_moment_is_new() -> None:
    told = _Told.of([line(1), line(2)])
    assert texts(told.skip([line(1), line(2), line(3, at=2), line(4)])) == ["0: 3", "0: 4"]


def test_nothing_is_lost_where_a_log_lost_its_beginning() -> None:
    told = _Told.of([line(1), line(2)])
    assert texts(told.skip([line(3), line(4)])) == ["0: 3", "0: 4"]


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    found = StateDirectory(tmp_path)
    for name, job in (("over", finished(code=3)), ("live", frayjob())):
        folder = found.job(name)
        folder.create()
        named = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name})})
        folder.write(named)
    return found


def test_local_jobs_are_waited_for(state: StateDirectory) -> None:
    locks = held_locks(state.job("live").path)
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            locks.release()  # its runner was killed

    jobs = LocalBackend(state, sleep=sleep).wait_finished(["over", "live"], None)
    assert [job.metadata.name for job in jobs] == ["over", "live"]
    assert jobs[1].status.reason == "RunnerLost"
    assert len(looks) == 3


def test_local_jobs_are_not_waited_for_longer_than_asked(state: StateDirectory) -> None:
    locks = held_locks(state.job("live").path)
    try:
        with pytest.raises(WaitTimeoutError, match="live") as caught:
            LocalBackend(state).wait_finished(["over", "live"], 0)
    finally:
        locks.release()
    assert caught.value.unfinished == ("live",)
    assert derive_error_exit_code(caught.value) == 124
    with pytest.raises(JobNotFoundError):
        LocalBackend(state).wait_finished(["none"], 0)


def test_a_cluster_spec_fills_in_what_a_file_leaves_open() -> None:
    spec = KubernetesSpec(image="i", queue="q", service_account="s")
    parent = Parent(name="above", root="above")
    bare = fill_in({"kind": "FrayJob", "spec": {"replicas": 2}}, spec, parent=parent)
    assert bare["spec"] == {
        "replicas": 2,
        "environment": {"image": "i"},
        "serviceAccountName": "s",
        "queue": {"name": "q"},
        "parent": {"name": "above", "root": "above"},
    }
    own = {"environment": {"image": "own"}, "serviceAccountName": "own", "queue": {"name": "own"}}
    assert fill_in({"spec": own}, spec, parent=None)["spec"] == own
    assert fill_in({"spec": own}, KubernetesSpec(), parent=None)["spec"] == own
