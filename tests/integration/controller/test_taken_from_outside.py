"""Somebody else takes an attempt's hosts away, suspends or deletes what they belong to."""

from __future__ import annotations

import pytest

from tests.integration.controller.hands import Hands, Manifest, eventually
from tests.integration.controller.test_transitions import attempt_of, await_deletion

pytestmark = pytest.mark.usefixtures("operator")

TWO_SLICES = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}


def start(hands: Hands, **spec: object) -> tuple[Manifest, list[Manifest]]:
    hands.submit("train", **spec)
    jobset = hands.await_jobset("train-a1")
    pods = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    return jobset, pods


def test_a_jobset_that_makes_a_deleted_job_anew_is_ended(hands: Hands) -> None:
    _, pods = start(hands, **TWO_SLICES)
    hands.exit(pods[2], 137)
    hands.await_phase("train", "Stopping")
    hands.delete_pod(pods[2])
    hands.delete_pod(pods[3])
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    job = hands.await_phase("train", "Failed")
    assert attempt_of(job, 1)["reason"] == "KilledBySignal"


def test_a_job_of_one_host_is_not_judged_while_its_jobset_may_start_it_again(hands: Hands) -> None:
    jobset, (pod,) = start(hands)
    hands.exit(pod, 137)
    job = hands.await_phase("train", "Stopping")
    assert "verdict" not in attempt_of(job, 1)
    hands.delete_pod(pod)
    hands.run_all(jobset)
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    assert attempt_of(hands.await_phase("train", "Failed"), 1)["verdict"] == "Failure"


def test_a_jobset_that_somebody_suspends_ends_its_attempt_at_nobodys_charge(hands: Hands) -> None:
    jobset, (pod,) = start(hands)
    hands.suspend(jobset)
    hands.exit(pod, 143)
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    hands.await_jobset("train-a2")
    job = hands.await_job("train", lambda job: job["status"]["attempt"] == 2)
    attempt = attempt_of(job, 1)
    assert (attempt["verdict"], attempt["reason"]) == ("Suspended", "Suspended")
    assert attempt["message"] == "its JobSet was suspended, and not by this job's spec.suspend"
    assert job["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}


def test_a_jobset_that_waits_for_its_queue_is_left_alone(hands: Hands) -> None:
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    hands.suspend(jobset)
    hands.submit("later")  # a pass of another job, after which the suspension was seen
    hands.run_all(hands.await_jobset("later-a1"))
    hands.await_phase("later", "Running")
    assert "deletionTimestamp" not in hands.await_jobset("train-a1")["metadata"]
    assert hands.job("train")["status"]["phase"] == "Pending"


def test_an_eviction_is_charged_to_preemptions(hands: Hands) -> None:
    jobset, pods = start(hands, replicas=2)
    hands.disrupt(pods[1], "EvictionByEvictionAPI", "Eviction API: evicting")
    hands.exit(pods[1], 137)
    hands.fail(jobset)
    hands.await_jobset("train-a2")
    job = hands.job("train")
    assert (attempt_of(job, 1)["verdict"], attempt_of(job, 1)["reason"]) == ("Preemption", "Disrupted")
    assert attempt_of(job, 1)["message"] == (
        "rank 1 (slice 0, host 1) was taken away (EvictionByEvictionAPI: Eviction API: evicting)"
    )
    assert job["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 1}


def test_a_sign_that_comes_after_a_peer_crashed_still_counts(hands: Hands) -> None:
    jobset, pods = start(hands, replicas=2)
    hands.exit(pods[0], 1)
    hands.await_phase("train", "Stopping")
    hands.disrupt(pods[1], "DeletionByTaintManager", "Taint manager: deleting")
    job = hands.await_job("train", lambda job: attempt_of(job, 1)["reason"] == "Disrupted")
    assert attempt_of(job, 1)["message"] == (
        "rank 0 (slice 0, host 0) exited with code 1; rank 1 (slice 0, host 1) was taken away "
        "(DeletionByTaintManager: Taint manager: deleting)"
    )
    hands.fail(jobset)
    hands.await_jobset("train-a2")
    assert hands.job("train")["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 1}


def test_an_eviction_whose_pods_are_gone_is_charged_to_preemptions_by_what_the_job_says(hands: Hands) -> None:
    jobset, pods = start(hands, **TWO_SLICES)
    name = pods[3]["metadata"]["name"]
    told = f"Pod {hands.namespace}/{name} has condition DisruptionTarget matching FailJob rule at index 0"
    hands.fail_job(jobset, told, index=1)
    hands.fail(jobset)
    hands.await_jobset("train-a2")
    job = hands.job("train")
    assert (attempt_of(job, 1)["verdict"], attempt_of(job, 1)["reason"]) == ("Preemption", "Disrupted")
    # Before it, a host may be named whose pod was gone earlier: they don't go all at once.
    assert attempt_of(job, 1)["message"].endswith(f"rank 3 (slice 1, host 1) was taken away ({told})")
    assert job["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 1}


def test_a_jobset_that_lost_its_owner_runs_on_and_is_stopped_with_its_job(hands: Hands) -> None:
    jobset, pods = start(hands)
    hands.disown(jobset)
    hands.submit("later")  # a pass of another job, after which the loss was seen
    hands.run_all(hands.await_jobset("later-a1"))
    hands.await_phase("later", "Running")
    assert hands.job("train")["status"]["phase"] == "Running"
    assert not hands.api.get(f"{hands.jobsets}/train-a2").ok
    hands.edit("train", stopped=True)
    hands.finish_deletion(await_deletion(hands, "train-a1"), pods)
    hands.await_phase("train", "Stopped")


def test_the_next_attempt_waits_for_pods_that_are_left_of_the_last(hands: Hands) -> None:
    jobset, (pod,) = start(hands)
    assert hands.api.delete(f"{hands.jobsets}/{jobset['metadata']['name']}").ok
    told = hands.await_condition("train", "Scheduled", status="False", reason="HostsLeftOver")
    assert (
        told["message"] == f"pod {pod['metadata']['name']} of attempt 1 must be gone before attempt 2 starts"
    )
    assert not hands.api.get(f"{hands.jobsets}/train-a2").ok
    hands.delete_pod(pod)
    hands.run_all(hands.await_jobset("train-a2"))
    job = hands.await_phase("train", "Running")
    assert attempt_of(job, 1)["reason"] == "HostsGone"


def test_a_job_of_one_host_that_is_made_anew_is_a_new_attempt(hands: Hands) -> None:
    jobset, (pod,) = start(hands)
    hands.delete_pod(pod)
    hands.create_pods(jobset)
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    hands.run_all(hands.await_jobset("train-a2"))
    job = hands.await_phase("train", "Running")
    assert (attempt_of(job, 1)["verdict"], attempt_of(job, 1)["reason"]) == ("Preemption", "HostsGone")


def test_an_attempt_whose_jobset_is_refused_is_not_told_as_started(hands: Hands) -> None:
    hands.api.post(hands.jobsets, _foreign_jobset())
    hands.submit("train")
    hands.await_condition("train", "Scheduled", status="False", reason="NameTaken")
    hands.await_event("train", "NameTaken")
    assert {event["reason"] for event in hands.events_of("train")} == {"NameTaken"}
    assert hands.api.delete(f"{hands.jobsets}/train-a1").ok
    eventually(lambda: "AttemptStarted" in {event["reason"] for event in hands.events_of("train")})
    hands.await_condition("train", "Scheduled", status="False", reason="HostsStarting")


def _foreign_jobset() -> Manifest:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train-a1"},
        "spec": {"replicatedJobs": []},
    }
