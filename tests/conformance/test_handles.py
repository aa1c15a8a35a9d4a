"""Handles of jobs: waiting for one and for all, the first failure, and who adopts a job that is there."""

from __future__ import annotations

import pytest

from fray.client import Client, JobAlreadyExists, JobFailed, JobHandle, current_client, wait_all
from fray.cluster import Cluster, Entrypoint, JobRequest, JobStatus, ResourceConfig
from fray.errors import (
    InvalidRequestError,
    JobNotFoundError,
    JobStoppedError,
    WaitTimeoutError,
)
from tests.conformance.backends import Backend
from tests.conformance.jobs import PATIENCE, RefusedError, read_until, run, stay, until


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client(cluster)


def program(name: str, script: str = "true") -> JobRequest:
    return JobRequest(name, Entrypoint.from_command(["sh", "-c", script]))


def refuse() -> None:
    raise RefusedError("no", 7)


def end(job: JobHandle) -> None:
    job.terminate()
    assert job.wait(PATIENCE, raise_on_failure=False) is JobStatus.STOPPED


def test_a_job_from_its_submission_to_its_end(client: Client, name: str) -> None:
    job = client.submit(JobRequest(name, Entrypoint.from_callable(lambda: [print("so"), 42][1])))
    assert name in job.job_id
    assert job.wait(PATIENCE) is JobStatus.SUCCEEDED
    assert job.status() == "succeeded"
    assert job.info().name == name
    assert job.logs() == ("[0/0 1] so",)
    assert job.result() == 42


def test_the_last_lines(client: Client, name: str) -> None:
    job = client.submit(program(name, "seq 30"))
    job.wait(PATIENCE)
    assert job.logs(2) == ("[0/0 1] 29", "[0/0 1] 30")
    assert len(job.logs(0)) == 30
    with pytest.raises(InvalidRequestError):
        job.logs(-1)


def test_a_failure_is_raised_unless_asked_otherwise(client: Client, name: str) -> None:
    job = client.submit(JobRequest(name, refuse))
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE)
    assert (caught.value.job_id, caught.value.status) == (job.job_id, JobStatus.FAILED)
    assert isinstance(caught.value.__cause__, RefusedError)
    assert job.wait(raise_on_failure=False) is JobStatus.FAILED
    with pytest.raises(JobFailed):
        job.result()


def test_a_job_that_is_ended(client: Client, name: str) -> None:
    job = client.submit(JobRequest(name, stay))
    with pytest.raises(WaitTimeoutError):
        job.wait(0)
    read_until(client.cluster, job.job_id, "ready")
    end(job)
    job.terminate()
    with pytest.raises(JobStoppedError) as caught:
        job.wait()
    assert isinstance(caught.value, JobFailed)
    assert caught.value.status == JobStatus.STOPPED


def test_wait_all_keeps_the_order(client: Client, name: str) -> None:
    assert wait_all([]) == []
    jobs = [client.submit(program(f"{name}-{number}", f"exit {number}")) for number in (0, 1, 0)]
    found = wait_all([*jobs, jobs[1]], timeout=PATIENCE, raise_on_failure=False)
    assert found == ["succeeded", "failed", "succeeded", "failed"]


def test_wait_all_ends_with_the_first_failure_and_the_others_run_on(client: Client, name: str) -> None:
    living = client.submit(JobRequest(f"{name}-living", stay))
    failing = client.submit(JobRequest(f"{name}-failing", refuse))
    with pytest.raises(JobFailed) as caught:
        wait_all([living, failing], timeout=PATIENCE)
    assert caught.value.job_id == failing.job_id
    assert isinstance(caught.value.__cause__, RefusedError)
    assert not JobStatus.finished(living.status())
    with pytest.raises(JobFailed):  # one that has failed before, too
        wait_all([living, failing])
    end(living)
    with pytest.raises(JobFailed) as caught:
        wait_all([living], timeout=PATIENCE)
    assert caught.value.status == JobStatus.STOPPED


def test_wait_all_ends_with_its_time_and_the_jobs_run_on(client: Client, name: str) -> None:
    done = client.submit(program(f"{name}-done"))
    done.wait(PATIENCE)
    living = client.submit(JobRequest(f"{name}-living", stay))
    for raise_on_failure in (True, False):
        with pytest.raises(TimeoutError) as caught:
            wait_all([done, living], timeout=0.1, raise_on_failure=raise_on_failure)
        assert isinstance(caught.value, WaitTimeoutError)
        assert caught.value.unfinished == (living.job_id,)
    assert not JobStatus.finished(living.status())
    end(living)


def test_a_job_that_is_there_can_be_had_again(client: Client, name: str) -> None:
    job = client.submit(program(name))
    again = client.attach(job.job_id)
    assert again == job
    assert len({job, again}) == 1
    assert again.wait(PATIENCE) is JobStatus.SUCCEEDED
    with pytest.raises(JobNotFoundError):
        client.attach(f"{name}-nobody")


def test_two_jobs_of_one_name_unless_asked_otherwise(client: Client, cluster: Cluster, name: str) -> None:
    first = client.submit(JobRequest(name, stay))
    second = client.submit(JobRequest(name, stay))
    assert first != second
    assert client.submit(program(name), adopt_existing=True) in (first, second)
    assert Client(cluster, adopt_existing=True).submit(program(name)) in (first, second)
    with pytest.raises(JobAlreadyExists) as caught:
        client.submit(program(name), adopt_existing=False)
    assert caught.value.job_name == name
    for job in (first, second):
        end(job)
    third = client.submit(program(name), adopt_existing=True)
    assert third not in (first, second)
    assert third.wait(PATIENCE) is JobStatus.SUCCEEDED


def submit_children(title: str) -> None:
    client = current_client()
    children = [client.submit(JobRequest(title, stay)) for _ in range(2)]
    print("submitted", flush=True)
    wait_all(children, raise_on_failure=False)


@pytest.mark.usefixtures("launching")
def test_hosts_of_a_job_share_the_children_that_they_submit(
    client: Client, backend: Backend, name: str
) -> None:
    """Each is a new process of the same parent, as in the next attempt; what one submits twice are two."""
    stranger = client.submit(JobRequest(f"{name}-child", stay))
    call = Entrypoint.from_callable(submit_children, [f"{name}-child"])
    parent = client.submit(JobRequest(name, call, ResourceConfig(replicas=3)))
    read_until(client.cluster, parent.job_id, "submitted", count=3)
    children = [info for info in client.cluster.list_jobs() if info.parent == parent.job_id]
    assert len(children) == (2 if backend.own_processes else 6)
    assert {info.name for info in children} == {f"{name}-child"}
    assert {info.root for info in children} == {parent.job_id}
    assert stranger.job_id not in {info.job_id for info in children}
    assert stranger.info().parent is None
    for info in children:
        end(client.attach(info.job_id))
    parent.wait(PATIENCE)
    end(stranger)


@pytest.mark.usefixtures("launching")
def test_inside_a_job_the_client_is_the_job_s(client: Client, name: str) -> None:
    def launch_inside() -> tuple[str, int]:
        job = current_client().submit(JobRequest(f"{name}-child", lambda: 21))
        return job.job_id, job.result()

    child, value = run(client.cluster, name, launch_inside)
    assert value == 21
    assert client.attach(child).info().parent == name


def test_jobs_of_several_clusters(client: Client, name: str) -> None:
    class Elsewhere:
        pass

    job = client.submit(program(name))
    job.wait(PATIENCE)
    stranger = JobHandle(Elsewhere(), job.job_id)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="several clusters"):
        wait_all([job, stranger])
    until(lambda: JobStatus.finished(job.status()))
