"""What jobs live through: the death of the program that launched them, a restart of the API server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fray.cluster import Cluster, Entrypoint, JobId, JobRequest, JobStatus
from tests.conformance.backends import Backend
from tests.conformance.jobs import (
    PATIENCE,
    Background,
    launch,
    read_until,
    stay,
    stay_until_told,
    tell,
    texts,
    until,
)

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from fray.cluster import Entrypoint, JobRequest, ResourceConfig, current_cluster
from tests.conformance import jobs

name, act, *args = sys.argv[1:]
entrypoint = Entrypoint.from_callable(getattr(jobs, act), args)
cluster = current_cluster()
job = cluster.launch(JobRequest(name, entrypoint, ResourceConfig(**jobs.SMALL)))
print(job, flush=True)
cluster.wait(job)
"""


@contextmanager
def launcher(backend: Backend, name: str, act: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has launched a job of this name, and waits for it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name, act, *args],
        env={**os.environ, **backend.variables, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == name
            yield process
        finally:
            process.kill()


def test_a_killed_client_is_followed_by_another(cluster: Cluster, backend: Backend, name: str) -> None:
    if not backend.outlives_launcher:
        pytest.skip("jobs end with the program that launched them, as the next test says")
    job, sign = JobId(name), f"{name}-go"
    with launcher(backend, name, "stay_until_told", sign) as process:
        read_until(cluster, job, "ready")
        process.kill()
    until(lambda: cluster.poll(job).status is JobStatus.RUNNING)
    again = JobRequest(name, Entrypoint.from_callable(stay_until_told, [sign]))
    assert cluster.launch(again, when_taken="adopt") == job
    tell(cluster, sign)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == 42
    assert texts(cluster.logs(job)) == ["ready", "told"]
    cluster.wait(JobId(sign), raise_on_failure=True, timeout=PATIENCE)


def test_jobs_that_end_with_their_client_say_so(cluster: Cluster, backend: Backend, name: str) -> None:
    if backend.outlives_launcher:
        pytest.skip("jobs go on without the program that launched them, as the test before says")
    with launcher(backend, name, "stay") as process:
        read_until(cluster, JobId(name), "ready")
        process.kill()
    info = cluster.wait(JobId(name), timeout=PATIENCE)
    assert (info.status, info.reason) == (JobStatus.FAILED, "RunnerLost")
    assert info.error_message


@pytest.mark.usefixtures("launching")
def test_waits_and_logs_go_on_through_a_restart_of_the_server(
    cluster: Cluster, backend: Backend, name: str
) -> None:
    signs = [f"{name}-{number}-go" for number in range(2)]
    jobs = [launch(cluster, f"{name}-{number}", stay_until_told, sign) for number, sign in enumerate(signs)]
    waiting = Background(lambda: cluster.wait(jobs, timeout=PATIENCE))
    reading = Background(lambda: texts(cluster.logs(jobs[0], follow=True)))
    for job in jobs:
        read_until(cluster, job, "ready")
    backend.restart_server()
    for sign in signs:
        tell(cluster, sign)
    assert [info.status for info in waiting.result()] == [JobStatus.SUCCEEDED] * 2
    assert reading.result() == ["ready", "told"]
    signs_seen = cluster.wait([JobId(sign) for sign in signs], timeout=PATIENCE)
    assert [info.status for info in signs_seen] == [JobStatus.SUCCEEDED] * 2


def test_a_terminate_after_a_restart_of_the_server(cluster: Cluster, backend: Backend, name: str) -> None:
    job = launch(cluster, name, stay)
    read_until(cluster, job, "ready")
    backend.restart_server()
    cluster.terminate(job)
    assert cluster.wait(job, timeout=PATIENCE).status is JobStatus.STOPPED
