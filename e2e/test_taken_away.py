"""What is taken from a running job, by the cluster or by hand: the right charge, one attempt at a time."""

from __future__ import annotations

from typing import Any

from e2e.job_namespace import JobNamespace, build_shell, until_told


def start(jobs: JobNamespace, name: str, **spec: Any) -> str:
    """Run a job until it is told to end; returns the name of its JobSet."""
    jobs.submit(build_shell(name, until_told(), **spec))
    jobs.await_job(name, "condition=Running")
    jobset: str = jobs.job(name)["status"]["attempts"][0]["jobSet"]
    return jobset


def finish_second_attempt(jobs: JobNamespace, name: str) -> dict[str, Any]:
    """Wait until a second attempt runs, and end it; returns the job's status."""
    jobs.await_job(name, "jsonpath={.status.attempt}=2")
    jobs.await_job(name, "condition=Running")
    jobs.tell(name, attempt=2)
    return jobs.await_end(name)


def test_an_evicted_host_is_charged_to_preemptions_and_the_gang_starts_again(jobs: JobNamespace) -> None:
    start(jobs, "evicted", replicas=2)
    pod = jobs.pods("evicted")[0]["metadata"]["name"]
    jobs.evict(pod)
    status = finish_second_attempt(jobs, "evicted")
    assert status["phase"] == "Succeeded", status
    assert [attempt["verdict"] for attempt in status["attempts"]] == ["Preemption", "Success"]
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 1}


def test_a_job_whose_jobset_lost_its_owner_goes_on_in_the_same_attempt(jobs: JobNamespace) -> None:
    jobset = start(jobs, "orphaned")
    orphan = '[{"op": "remove", "path": "/metadata/ownerReferences"}]'
    jobs.kubectl("patch", f"jobset/{jobset}", "--type=json", f"--patch={orphan}")
    # The operator has looked at the job since: it writes no status for a change that means nothing.
    jobs.kubectl("patch", "fj/orphaned", "--type=merge", '--patch={"spec": {"suspend": true}}')
    jobs.await_job("orphaned", "jsonpath={.status.phase}=Suspended")
    assert [pod["metadata"]["name"] for pod in jobs.pods("orphaned", attempt=2)] == []
    jobs.kubectl("patch", "fj/orphaned", "--type=merge", '--patch={"spec": {"suspend": false}}')
    status = finish_second_attempt(jobs, "orphaned")
    assert [attempt["verdict"] for attempt in status["attempts"]] == ["Suspended", "Success"]
    assert jobs.kubectl.items("jobsets", f"--field-selector=metadata.name={jobset}") == []


def test_a_job_whose_child_is_deleted_ends_that_attempt_and_starts_anew(jobs: JobNamespace) -> None:
    jobset = start(jobs, "robbed")
    jobs.kubectl("delete", f"job/{jobset}-slice-0", "--wait=false")
    status = finish_second_attempt(jobs, "robbed")
    assert status["phase"] == "Succeeded", status
    assert status["attempts"][0]["reason"] == "HostsGone", status
    assert status["retries"]["failuresUsed"] == 0
