"""Names: jobs of one name are different jobs, unless their launcher says otherwise."""

from __future__ import annotations

import pytest

from fray.cluster import Cluster, Entrypoint, JobRequest
from fray.errors import InvalidRequestError, JobExistsError
from tests.conformance.jobs import PATIENCE, launch, read_until, shell, stay, until


def test_two_jobs_of_one_name(cluster: Cluster, name: str) -> None:
    first = shell(cluster, name, "echo first")
    second = shell(cluster, name, "echo second")
    assert first != second
    infos = cluster.wait([first, second], timeout=PATIENCE)
    assert [info.name for info in infos] == [name, name]
    assert [[line.text for line in cluster.logs(job)] for job in (first, second)] == [["first"], ["second"]]
    third = shell(cluster, name, "true")
    assert third not in (first, second)
    cluster.wait(third, timeout=PATIENCE)


def test_a_name_that_is_taken(cluster: Cluster, name: str) -> None:
    request = JobRequest(name, Entrypoint.from_command(["true"]))
    living = launch(cluster, name, stay)
    read_until(cluster, living, "ready")
    assert cluster.launch(request, when_taken="adopt") == living
    with pytest.raises(JobExistsError) as caught:
        cluster.launch(request, when_taken="refuse")
    assert caught.value.name == name
    cluster.terminate(living)
    cluster.wait(living, timeout=PATIENCE)
    for when_taken in ("adopt", "refuse"):
        job = cluster.launch(request, when_taken=when_taken)  # type: ignore[arg-type]
        assert job != living
        assert cluster.wait(job, timeout=PATIENCE).status == "succeeded"


@pytest.mark.parametrize("title", ["train_lm", "Größe-1", "x" * 253, "7b", "a.b/c", "-"])
def test_names_that_no_object_can_have(cluster: Cluster, title: str) -> None:
    job = shell(cluster, title, "true")
    info = cluster.wait(job, timeout=PATIENCE)
    assert (info.job_id, info.name, info.status) == (job, title, "succeeded")
    assert job in [each.job_id for each in cluster.list_jobs()]


def test_names_that_nothing_can_have() -> None:
    for title in ("", "a b", "a\nb", "x" * 254):
        with pytest.raises(InvalidRequestError):
            JobRequest(title, print)


def test_list_jobs_has_living_and_finished_ones(cluster: Cluster, name: str) -> None:
    done = shell(cluster, f"{name}-done", "true")
    cluster.wait(done, timeout=PATIENCE)
    living = launch(cluster, f"{name}-living", stay)
    until(lambda: cluster.poll(living).status == "running")
    found = {info.job_id: info.status for info in cluster.list_jobs()}
    assert (found[done], found[living]) == ("succeeded", "running")
    assert list(found) == sorted(found)
    cluster.terminate(living)
    cluster.wait(living, timeout=PATIENCE)
