"""Which client a process uses: the one that was set, one of the cluster that was set, the environment's."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import fray
from fray.client import Client, JobAlreadyExists, JobFailed, current_client, set_current_client
from fray.cluster import LocalCluster, current_cluster, set_current_cluster
from fray.errors import ClusterSpecError, JobError, JobExistsError, JobFailedError, JobStoppedError
from fray.types import JobStatus

T = TypeVar("T")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path / "state"))
    for variable in ("FRAY_CLUSTER_SPEC", "FRAY_CLIENT_SPEC"):
        monkeypatch.delenv(variable, raising=False)


def in_a_context(function: Callable[[], T]) -> T:
    return contextvars.Context().run(function)


def test_it_uses_the_current_cluster() -> None:
    assert in_a_context(current_client).cluster is in_a_context(current_cluster)


def test_its_own_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_CLUSTER_SPEC", "local?use_isolated_env=true")
    assert str(in_a_context(current_client).cluster.spec) == "local?use_isolated_env=true"
    monkeypatch.setenv("FRAY_CLIENT_SPEC", "local?mode=thread")
    assert str(in_a_context(current_client).cluster.spec) == "local?mode=thread"
    assert str(in_a_context(current_cluster).spec) == "local?use_isolated_env=true"


def test_a_number_of_threads_is_no_error_and_said_to_be_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_CLIENT_SPEC", "local?threads=4")
    with pytest.warns(UserWarning, match="threads isn't used, since jobs are processes; write") as caught:
        client = in_a_context(current_client)
    assert str(client.cluster.spec) == "local"
    assert len(caught) == 1


def test_a_variable_that_is_not_read_any_more_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_BACKEND", "ray")
    with pytest.warns(UserWarning, match="FRAY_BACKEND=ray: it isn't read.*write FRAY_CLUSTER_SPEC=ray"):
        assert str(in_a_context(current_cluster).spec) == "local"
    monkeypatch.setenv("FRAY_CLUSTER_SPEC", "local?mode=thread")
    assert str(in_a_context(current_cluster).spec) == "local?mode=thread"


def test_what_was_set_comes_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_CLIENT_SPEC", "local?mode=thread")
    chosen = LocalCluster()

    def use() -> tuple[Client, Client, Client]:
        set_current_cluster(chosen)
        of_cluster, mine = current_client(), Client(LocalCluster())
        found: list[Client] = []

        def fail_within() -> None:
            with set_current_client(mine):
                found.append(current_client())
                raise KeyError

        with pytest.raises(KeyError):
            fail_within()
        assert found == [mine]
        return of_cluster, mine, current_client()

    before, within, after = in_a_context(use)
    assert before.cluster is after.cluster is chosen
    assert within.cluster is not chosen


def test_a_spec_that_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_CLIENT_SPEC", "iris://somewhere:1")
    with pytest.raises(ClusterSpecError) as caught:
        in_a_context(current_client)
    assert isinstance(caught.value, ValueError)


def test_errors_have_the_names_and_the_data_of_the_earlier_api() -> None:
    assert JobFailed is JobError
    assert issubclass(JobAlreadyExists, JobExistsError)
    assert issubclass(JobAlreadyExists, RuntimeError)
    assert fray.JobFailed is JobFailed
    failed, stopped = JobFailedError("a", "NonZeroExit", "no"), JobStoppedError("b", "StopRequested", "no")
    assert (failed.job_id, failed.status) == ("a", JobStatus.FAILED)
    assert (stopped.job_id, stopped.status) == ("b", JobStatus.STOPPED)
    assert JobAlreadyExists("a").job_name == "a"
