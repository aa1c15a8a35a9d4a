"""How jobs end, and what their launcher is told: values, exceptions with their types, exit codes."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from fray import FrayError, current_identity
from fray.cluster import Cluster, Entrypoint, JobRequest, JobStatus, ResourceConfig
from fray.errors import (
    InvalidRequestError,
    JobFailedError,
    JobsFailedError,
    OutcomeUnreadableError,
    RemoteTracebackError,
    UnpicklableExceptionError,
)
from tests.conformance.jobs import PATIENCE, RefusedError, launch, run


def fail_deeply() -> None:
    raise RefusedError("no, töricht", 7)


def fail_with_a_cause() -> None:
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("bad shard") from error


def fail_unpicklably() -> None:
    kind = type("KeepsALock", (Exception,), {"lock": threading.Lock()})
    raise kind("holds a lock")


async def add_later(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


def test_a_callable_succeeds(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, lambda: {"ok": (1, "zwei")})
    info = cluster.wait(job, timeout=PATIENCE)
    assert info == cluster.poll(job)
    assert (info.job_id, info.name, info.status) == (job, name, JobStatus.SUCCEEDED)
    assert info.error_message is None
    assert info.start_time is not None
    assert info.end_time is not None
    assert info.start_time <= info.end_time
    assert [task.status for task in info.tasks] == [JobStatus.SUCCEEDED]
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == {"ok": (1, "zwei")}


def test_a_callable_that_returns_nothing(cluster: Cluster, name: str) -> None:
    assert run(cluster, name, print, "nothing") is None


def test_a_coroutine_function(cluster: Cluster, name: str) -> None:
    assert run(cluster, name, add_later, 40, 2) == 42


def test_a_value_that_cannot_come_back_says_so(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, lambda: (each for each in ()))
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.SUCCEEDED
    outcome = cluster.outcome(job)
    assert outcome is not None
    with pytest.raises(OutcomeUnreadableError):
        outcome.result()


def test_the_exception_comes_back_with_type_message_and_traceback(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, fail_deeply)
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.name == job
    assert "RefusedError" in str(caught.value)
    cause = caught.value.__cause__
    assert type(cause) is RefusedError
    assert (cause.why, cause.code) == ("no, töricht", 7)
    assert isinstance(cause.__cause__, RemoteTracebackError)
    assert "fail_deeply" in str(cause.__cause__)


def test_without_raise_on_failure_the_message_tells(cluster: Cluster, name: str) -> None:
    info = cluster.wait(launch(cluster, name, fail_deeply), timeout=PATIENCE)
    assert info.status is JobStatus.FAILED
    assert info.error_message is not None
    assert "RefusedError" in info.error_message
    assert [task.status for task in info.tasks] == [JobStatus.FAILED]


def test_causes_are_in_the_remote_traceback(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, fail_with_a_cause)
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert type(caught.value.__cause__) is ValueError
    told = str(caught.value.__cause__.__cause__)
    assert "KeyError: 'key'" in told
    assert "bad shard" in told


def test_an_exception_that_cannot_be_pickled_comes_as_text(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, fail_unpicklably)
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    cause = caught.value.__cause__
    assert isinstance(cause, UnpicklableExceptionError)
    assert "holds a lock" in cause.error_text
    assert "KeepsALock" in cause.error_type


@pytest.mark.parametrize(("code", "status"), [(0, "succeeded"), (3, "failed"), ("why", "failed")])
def test_sys_exit(cluster: Cluster, name: str, code: int | str, status: str) -> None:
    job = launch(cluster, name, sys.exit, code)
    info = cluster.wait(job, timeout=PATIENCE)
    assert info.status == status
    if code == 3:
        assert info.error_message is not None
        assert "code 3" in info.error_message
    assert cluster.outcome(job) is None


def test_programs(cluster: Cluster, name: str) -> None:
    good = cluster.launch(JobRequest(f"{name}-good", Entrypoint.from_command(["sh", "-c", "exit 0"])))
    bad = cluster.launch(JobRequest(f"{name}-bad", Entrypoint.from_command(["sh", "-c", "echo so; exit 9"])))
    module = Entrypoint.from_module("json.tool", ["--help"])
    tool = cluster.launch(JobRequest(f"{name}-tool", module))
    infos = cluster.wait([good, bad, tool], timeout=PATIENCE)
    assert [info.status for info in infos] == ["succeeded", "failed", "succeeded"]
    assert infos[1].error_message is not None
    assert "code 9" in infos[1].error_message
    assert "so" in infos[1].error_message
    assert cluster.outcome(good) is None
    assert cluster.outcome(bad) is None


def test_several_failures_are_told_together(cluster: Cluster, name: str) -> None:
    jobs = [launch(cluster, f"{name}-{number}", sys.exit, number) for number in (0, 1, 2)]
    with pytest.raises(JobsFailedError) as caught:
        cluster.wait(jobs, raise_on_failure=True, timeout=PATIENCE)
    assert [failed for failed, _ in caught.value.failures] == jobs[1:]
    assert all(failed in str(caught.value) for failed in jobs[1:])


def test_one_bad_copy_fails_the_job(cluster: Cluster, name: str) -> None:
    def fail_as_second() -> None:
        if current_identity().rank == 1:
            raise RefusedError("I am the second", 1)

    job = launch(cluster, name, fail_as_second, resources=ResourceConfig(replicas=3))
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert isinstance(caught.value.__cause__, RefusedError)
    statuses = [task.status for task in cluster.poll(job).tasks]
    assert statuses == [JobStatus.STOPPED, JobStatus.FAILED, JobStatus.STOPPED]


def test_bad_timeouts(cluster: Cluster, name: str) -> None:
    for timeout in (-1.0, float("nan")):
        with pytest.raises(InvalidRequestError) as caught:
            cluster.wait([], timeout=timeout)
        assert isinstance(caught.value, FrayError)
