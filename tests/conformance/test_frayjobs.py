"""A FrayJob as it is written: created, read, watched to its end, and deleted."""

from __future__ import annotations

import pytest

from fray.cluster import Cluster, JobId
from fray.errors import JobExistsError, JobNotFoundError, JobRunningError
from fray.plan.status import has_succeeded, is_finished
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob
from tests.conformance.jobs import read_until, texts, until

LITTLE = {"cpu": "50m", "memory": "512Mi", "disk": "100Mi"}


def write(name: str, script: str) -> FrayJob:
    return build_frayjob(name, entrypoint={"command": ["sh", "-c", script]}, resources=LITTLE)


def names(cluster: Cluster) -> list[str]:
    return [job.metadata.name for job in cluster.get_all()]


def test_a_frayjob_from_its_creation_to_its_end(cluster: Cluster, name: str) -> None:
    job = cluster.create(write(name, "echo seen"))
    states = list(cluster.watch(job))
    assert {state.metadata.name for state in states} == {name} == {job}
    assert [is_finished(state.status) for state in states] == [False] * (len(states) - 1) + [True]
    assert has_succeeded(states[-1].status)
    assert cluster.get(job).status == states[-1].status
    assert cluster.get(job).spec.entrypoint.command == ["sh", "-c", "echo seen"]
    assert [state.metadata.name for state in cluster.watch(job)] == [name], "one that has ended"
    assert texts(cluster.logs(job)) == ["seen"]
    assert names(cluster) == sorted(names(cluster))
    assert job in names(cluster)
    cluster.delete(job)
    check_gone(cluster, job)


def test_a_frayjob_that_runs_keeps_its_name_until_it_is_deleted(cluster: Cluster, name: str) -> None:
    job = cluster.create(write(name, "echo ready; exec sleep 3600"))
    read_until(cluster, job, "ready")
    until(lambda: cluster.get(job).status.phase == "Running")
    with pytest.raises((JobExistsError, JobRunningError)) as caught:
        cluster.create(write(name, "true"))
    assert caught.value.name == name
    cluster.delete(job)
    check_gone(cluster, job)


def check_gone(cluster: Cluster, job: JobId) -> None:
    for ask in (cluster.get, cluster.delete, lambda job: next(cluster.watch(job))):
        with pytest.raises(JobNotFoundError):
            ask(job)
    assert job not in names(cluster)
