"""Waiting for one job and for many, ending jobs in every state, and ids that mean nothing."""

from __future__ import annotations

import threading

import pytest

from fray.cluster import Cluster, JobId, JobStatus, ResourceConfig
from fray.errors import JobNotFoundError, JobStoppedError, LogsNotFoundError, WaitTimeoutError
from tests.conformance.backends import Backend
from tests.conformance.jobs import PATIENCE, launch, read_until, shell, stay, until


def test_wait_on_many_keeps_their_order(cluster: Cluster, name: str) -> None:
    jobs = [shell(cluster, f"{name}-{number}", f"exit {number}") for number in range(4)]
    asked = [jobs[2], jobs[0], jobs[3], jobs[0], jobs[1]]
    infos = cluster.wait(asked, timeout=PATIENCE)
    assert [info.job_id for info in infos] == asked
    assert [info.status for info in infos] == ["failed", "succeeded", "failed", "succeeded", "failed"]


def test_wait_on_two_dozen(cluster: Cluster, name: str) -> None:
    jobs = [shell(cluster, f"{name}-{number}", "true") for number in range(24)]
    infos = cluster.wait(jobs, raise_on_failure=True, timeout=PATIENCE)
    assert [info.job_id for info in infos] == jobs


def test_wait_on_none(cluster: Cluster) -> None:
    assert cluster.wait([]) == []


def test_wait_ends_with_its_time_and_the_job_goes_on(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, stay)
    with pytest.raises(WaitTimeoutError) as caught:
        cluster.wait([job], timeout=0)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.unfinished == (job,)
    read_until(cluster, job, "ready")
    until(lambda: cluster.poll(job).status is JobStatus.RUNNING)
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.STOPPED


def test_many_threads_wait_for_one_job(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, stay)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(cluster.wait(job, timeout=PATIENCE).status))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    read_until(cluster, job, "ready")
    cluster.terminate(job)
    for thread in threads:
        thread.join()
    assert found == [JobStatus.STOPPED] * 4


def test_terminate_while_running(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, stay, resources=ResourceConfig(replicas=2))
    read_until(cluster, job, "ready", count=2)
    cluster.terminate(job)
    cluster.terminate(job)
    info = cluster.wait(job, timeout=PATIENCE)
    assert info.status is JobStatus.STOPPED
    assert info.error_message
    assert [task.status for task in info.tasks] == [JobStatus.STOPPED] * 2
    assert cluster.outcome(job) is None
    with pytest.raises(JobStoppedError):
        cluster.wait(job, raise_on_failure=True)


def test_terminate_a_program(cluster: Cluster, name: str) -> None:
    job = shell(cluster, name, "echo ready; sleep 10000")
    read_until(cluster, job, "ready")
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.STOPPED


def test_terminate_at_once(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, stay)
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.STOPPED


def test_terminate_while_pending(cluster: Cluster, backend: Backend, name: str) -> None:
    job = cluster.launch(backend.make_pending(name))
    # Starting is pending too, for a moment: what is meant here says why it doesn't go on.
    until(lambda: cluster.poll(job).reason not in (None, "HostsStarting", "AllHostsRunning", "Stopping"))
    info = cluster.poll(job)
    assert info.status is JobStatus.PENDING
    assert info.pending_reason
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.STOPPED


def test_terminate_once_finished(cluster: Cluster, name: str) -> None:
    job = shell(cluster, name, "true")
    before = cluster.wait(job, timeout=PATIENCE)
    cluster.terminate(job)
    assert cluster.poll(job) == before


@pytest.mark.parametrize("job", ["nobody", "", "../..", "No_Such_Job", "a" * 300])
def test_unknown_ids(cluster: Cluster, job: str) -> None:
    unknown = JobId(job)
    for ask in (cluster.poll, cluster.terminate, cluster.logs, cluster.outcome, cluster.monitor):
        with pytest.raises(JobNotFoundError) as caught:
            ask(unknown)
        assert isinstance(caught.value, KeyError)
    with pytest.raises(JobNotFoundError):
        cluster.wait(unknown)
    with pytest.raises(JobNotFoundError):
        cluster.wait([unknown])


def test_logs_that_are_not_there(cluster: Cluster, name: str) -> None:
    job = shell(cluster, name, "true")
    cluster.wait(job, timeout=PATIENCE)
    for options in ({"rank": 1}, {"rank": -1}, {"attempt": 2}, {"attempt": 0}):
        with pytest.raises(LogsNotFoundError):
            cluster.logs(job, **options)  # type: ignore[arg-type]
