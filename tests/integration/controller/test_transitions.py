"""Every step in the life of a FrayJob, as its status tells it, with all controllers played by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fray.termination import Ending, TerminationMessage
from tests.integration.controller.hands import Hands, condition, eventually

pytestmark = pytest.mark.usefixtures("operator")

TWO_SLICES = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}
"""Two slices of two hosts."""


def attempt_of(job: dict[str, Any], number: int) -> dict[str, Any]:
    (found,) = [attempt for attempt in job["status"]["attempts"] if attempt["number"] == number]
    return dict(found)


def test_a_new_job_is_accepted_and_its_first_attempt_is_a_jobset_of_its_own(hands: Hands) -> None:
    created = hands.submit("train", **TWO_SLICES)
    jobset = hands.await_jobset("train-a1")
    (owner,) = jobset["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
    job = hands.await_phase("train", "Pending")
    assert (
        condition(job, "Accepted")["message"]
        == "the job asks for 2 slices of v5p-16 (2 hosts x 4 chips each)"
    )
    assert [condition(job, kind)["status"] for kind in ("Scheduled", "Running", "Finished")] == ["False"] * 3
    assert condition(job, "Scheduled")["reason"] == "HostsStarting"
    assert job["status"]["replicas"] == {"total": 4, "pending": 4, "running": 0, "succeeded": 0, "failed": 0}
    assert attempt_of(job, 1)["jobSet"] == "train-a1"


def test_a_job_whose_hosts_all_run_is_running_and_one_whose_hosts_all_end_well_has_succeeded(
    hands: Hands,
) -> None:
    hands.submit("train", **TWO_SLICES)
    jobset = hands.await_jobset("train-a1")
    pods = hands.create_pods(jobset)
    for pod in pods:
        hands.bind(pod)
    hands.await_condition("train", "Scheduled", status="True", reason="AllHostsPlaced")
    for pod in pods[:3]:
        hands.run(pod)
    job = hands.await_job("train", lambda job: job["status"]["replicas"]["running"] == 3)
    assert job["status"]["phase"] == "Pending"
    assert condition(job, "Running")["message"] == "1 of 4 hosts are starting"
    hands.run(pods[3])
    job = hands.await_phase("train", "Running")
    assert condition(job, "Running")["message"] == "4 of 4 hosts run (attempt 1)"
    assert attempt_of(job, 1)["runningTime"]
    for pod in pods:
        hands.exit(pod, 0)
    hands.complete(jobset)
    job = hands.await_phase("train", "Succeeded")
    assert condition(job, "Succeeded")["message"] == "all 4 hosts exited with code 0 in attempt 1"
    assert condition(job, "Finished")["status"] == "True"
    assert job["status"]["replicas"] == {"total": 4, "pending": 0, "running": 0, "succeeded": 4, "failed": 0}
    assert attempt_of(job, 1)["verdict"] == "Success"
    assert job["status"]["completionTime"]


LOG = "\n".join([f"step {number}" for number in range(40)] + ["ValueError: loss is nan"])


def test_the_first_host_that_fails_is_the_named_cause_and_its_peers_are_waited_for(hands: Hands) -> None:
    hands.submit("train", **TWO_SLICES)
    jobset = hands.await_jobset("train-a1")
    pods = hands.run_all(jobset, node="node-7")
    hands.await_phase("train", "Running")
    hands.exit(pods[2], 3, message=LOG)
    job = hands.await_phase("train", "Stopping")
    assert job["status"]["replicas"] == {"total": 4, "pending": 0, "running": 3, "succeeded": 0, "failed": 1}
    assert (
        condition(job, "Running")["message"]
        == "attempt 1 is ending: rank 2 (slice 1, host 0) exited with code 3"
    )
    assert hands.api.get(f"{hands.jobsets}/train-a1").body["metadata"].get("deletionTimestamp") is None
    hands.exit(pods[1], 137, reason="OOMKilled")  # a peer that crashed as it lost a member
    hands.fail(jobset)
    job = hands.await_phase("train", "Failed")
    attempt = attempt_of(job, 1)
    assert (attempt["pod"], attempt["node"]) == (pods[2]["metadata"]["name"], "node-7")
    assert (attempt["rank"], attempt["exitCode"], attempt["reason"]) == (2, 3, "NonZeroExit")
    assert attempt["message"] == "rank 2 (slice 1, host 0) exited with code 3"
    assert attempt["logTail"] == [
        *[f"step {number}" for number in range(36, 40)],
        "ValueError: loss is nan",
    ]
    failed = condition(job, "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "NonZeroExit")
    assert failed["message"].startswith(
        "rank 2 (slice 1, host 0) exited with code 3 in attempt 1; spec.retries.failures allows no retry"
        "\nstep 36"
    )
    assert job["status"]["replicas"]["running"] == 0


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (137, "OOMKilled", ("OutOfMemory", "rank 0 (slice 0, host 0) ran out of memory (exit code 137)")),
        (139, "Error", ("KilledBySignal", "rank 0 (slice 0, host 0) was killed by SIGSEGV (exit code 139)")),
        (128, "StartError", ("StartFailed", "rank 0 (slice 0, host 0) could not start: exec: no such file")),
        (255, "Error", ("NonZeroExit", "rank 0 (slice 0, host 0) exited with code 255")),
    ],
)
def test_a_host_can_end_badly_in_several_ways(
    hands: Hands, code: int, reason: str, told: tuple[str, str]
) -> None:
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    message = "exec: no such file" if reason == "StartError" else ""
    hands.exit(pod, code, reason=reason, message=message)
    hands.fail(jobset)
    attempt = attempt_of(hands.await_phase("train", "Failed"), 1)
    assert (attempt["reason"], attempt["message"]) == told


def test_a_jobset_that_fails_and_takes_its_pods_along_ends_the_attempt(hands: Hands) -> None:
    hands.submit("train", replicas=2)
    jobset = hands.await_jobset("train-a1")
    hands.fail(jobset)
    job = hands.await_phase("train", "Failed")
    told = "rank 0 (slice 0, host 0) failed: its pod is gone, and nothing tells how it ended"
    assert (attempt_of(job, 1)["message"], attempt_of(job, 1).get("pod")) == (told, None)


def test_a_jobset_that_fails_before_its_hosts_run_ends_the_attempt_at_once(hands: Hands) -> None:
    hands.submit("train", replicas=2)
    jobset = hands.await_jobset("train-a1")
    hands.create_pods(jobset)
    hands.await_job("train", lambda job: job["status"]["replicas"]["pending"] == 2)
    hands.fail(jobset, [])
    job = hands.await_phase("train", "Failed")
    assert attempt_of(job, 1)["message"] == "rank 0 (slice 0, host 0) failed: its JobSet failed before it ran"


def test_a_failed_attempt_is_retried_within_its_budget_in_a_jobset_of_its_own(hands: Hands) -> None:
    hands.submit("train", retries={"failures": 1})
    for number in (1, 2):
        jobset = hands.await_jobset(f"train-a{number}")
        (pod,) = hands.run_all(jobset)
        job = hands.await_phase("train", "Running")
        assert (job["status"]["attempt"], condition(job, "Running")["message"]) == (
            number,
            f"1 of 1 hosts run (attempt {number})",
        )
        hands.exit(pod, number)
        hands.fail(jobset)
    job = hands.await_phase("train", "Failed")
    assert [(a["number"], a["verdict"], a["exitCode"]) for a in job["status"]["attempts"]] == [
        (1, "Failure", 1),
        (2, "Failure", 2),
    ]
    assert job["status"]["retries"] == {"failuresUsed": 2, "preemptionsUsed": 0}
    assert condition(job, "Failed")["message"] == (
        "rank 0 (slice 0, host 0) exited with code 2 in attempt 2; 1 of 1 retries for failures used"
    )
    assert {jobset["metadata"]["name"] for jobset in hands.list(hands.jobsets)} == {"train-a1", "train-a2"}


def test_a_stopped_job_ends_its_hosts_before_it_counts_as_stopped(hands: Hands) -> None:
    hands.submit("train", **TWO_SLICES)
    jobset = hands.await_jobset("train-a1")
    hands.run_all(jobset)
    hands.await_phase("train", "Running")
    hands.edit("train", stopped=True)
    job = hands.await_phase("train", "Stopping")
    assert condition(job, "Running")["message"] == "attempt 1 is ending: spec.stopped is true"
    assert condition(job, "Finished")["status"] == "False"
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    job = hands.await_phase("train", "Stopped")
    assert condition(job, "Stopped")["message"] == "spec.stopped is true"
    assert job["status"]["replicas"] == {"total": 4, "pending": 0, "running": 0, "succeeded": 0, "failed": 0}
    assert attempt_of(job, 1)["verdict"] == "Stopped"


def test_a_suspended_job_waits_without_hosts_and_resumes_with_the_next_attempt(hands: Hands) -> None:
    hands.submit("train")
    hands.run_all(hands.await_jobset("train-a1"))
    hands.await_phase("train", "Running")
    hands.edit("train", suspend=True)
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    job = hands.await_phase("train", "Suspended")
    assert condition(job, "Running")["message"] == "spec.suspend is true"
    assert attempt_of(job, 1)["verdict"] == "Suspended"
    assert hands.list(hands.jobsets) == []
    hands.edit("train", suspend=False)
    jobset = hands.await_jobset("train-a2")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    hands.exit(pod, 0)
    job = hands.await_phase("train", "Succeeded")
    assert job["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}


def test_a_job_created_suspended_starts_nothing_and_one_stopped_then_has_nothing_to_end(hands: Hands) -> None:
    hands.submit("train", suspend=True)
    assert hands.await_phase("train", "Suspended")["status"]["attempts"] == []
    hands.edit("train", stopped=True)
    hands.await_phase("train", "Stopped")
    assert hands.list(hands.jobsets) == []


def test_a_job_whose_hosts_dont_run_in_time_is_ended_and_charged(hands: Hands) -> None:
    hands.submit("train", timeouts={"pendingSeconds": 1})
    hands.create_pods(hands.await_jobset("train-a1"))
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    job = hands.await_phase("train", "Failed")
    assert attempt_of(job, 1)["reason"] == "PendingTimeout"
    assert condition(job, "Failed")["message"].startswith(
        "not all hosts ran within spec.timeouts.pendingSeconds (1)"
    )


def test_a_pod_template_of_the_wrong_shape_is_refused_with_its_field(hands: Hands) -> None:
    hands.submit("train", podTemplate={"spec": {"containers": "banana"}})
    refused = hands.await_condition("train", "Accepted", status="False", reason="PodTemplateInvalid")
    told = "spec.podTemplate.spec.containers: must be a list of mappings, each with a name"
    assert refused["message"] == told
    assert hands.job("train")["status"]["attempts"] == []
    assert hands.list(hands.jobsets) == []


def test_packages_are_installed_by_the_container_with_what_the_operators_image_brings(hands: Hands) -> None:
    workspace = {"secretName": "code", "moreSecrets": ["code-1"], "sha256": "0" * 64}
    hands.submit("train", environment={"pipPackages": ["numpy"], "extras": ["tpu"], "workspace": workspace})
    jobset = hands.await_jobset("train-a1")
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (injector,) = spec["initContainers"]
    assert injector["image"] == "fray-operator:0.1.0"
    (pod,) = hands.run_all(jobset)
    told = TerminationMessage(Ending.NEVER_RAN, "PackagesNotInstalledError", "numpy can't be installed: no")
    hands.exit(pod, 113, message=told.to_json())
    hands.await_phase("train", "Failed")
    (attempt,) = hands.job("train")["status"]["attempts"]
    assert (attempt["reason"], attempt["verdict"]) == ("PackagesNotInstalled", "Failure")
    assert "couldn't install its packages (exit code 113)" in attempt["message"]
    assert attempt["logTail"] == ["PackagesNotInstalledError: numpy can't be installed: no"]


@pytest.mark.parametrize("workers", [{"workers": {}}, {}], ids=["may have workers", "has none"])
def test_a_job_that_was_scaled_goes_on_after_a_failed_attempt(hands: Hands, workers: dict[str, Any]) -> None:
    hands.submit("train", retries={"failures": 1}, **workers)
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    hands.scale("train", 1)
    hands.exit(pod, 3)
    hands.fail(jobset)
    hands.collect_until(lambda: hands.job("train")["status"]["attempt"] == 2)
    hands.await_jobset("train-a2")
    assert hands.await_phase("train", "Restarting")["spec"]["workers"]["replicas"] == 1


def test_a_jobset_that_somebody_deleted_is_made_again(hands: Hands) -> None:
    hands.submit("train")
    first = hands.await_jobset("train-a1")
    assert hands.api.delete(f"{hands.jobsets}/train-a1").ok
    hands.await_job(
        "train", lambda _: hands.await_jobset("train-a1")["metadata"]["uid"] != first["metadata"]["uid"]
    )
    assert hands.job("train")["status"]["attempt"] == 1


def await_deletion(hands: Hands, name: str) -> dict[str, Any]:
    """Return a JobSet once the operator has asked for its deletion."""

    def is_deleted() -> Any:
        jobset = hands.await_jobset(name)
        return "deletionTimestamp" in jobset["metadata"] and jobset

    jobset: dict[str, Any] = eventually(is_deleted, told=lambda: hands.await_jobset(name)["metadata"])
    assert jobset["metadata"]["finalizers"] == ["foregroundDeletion"]
    return jobset
