"""What becomes of jobs and attempts that have ended, and of the jobs that they launched."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fray.plan.timestamps import parse_time
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, condition, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.controller.test_transitions import await_deletion


def succeed(hands: Hands, name: str, **spec: Any) -> None:
    """Run a job to its good end."""
    hands.submit(name, **spec)
    jobset = hands.await_jobset(f"{name}-a1")
    (pod,) = hands.run_all(jobset)
    hands.await_phase(name, "Running")
    hands.exit(pod, 0)
    hands.complete(jobset)


def is_deleted(hands: Hands, name: str) -> bool:
    """Whether the deletion of a FrayJob was asked for."""
    found = hands.api.get(f"{hands.jobs}/{name}")
    return not found.ok or "deletionTimestamp" in found.body["metadata"]


def await_job_deletion(hands: Hands, name: str) -> dict[str, Any]:
    """Return a FrayJob once its deletion was asked for."""
    return hands.await_job(name, lambda job: "deletionTimestamp" in job["metadata"])


# --- time to live ---------------------------------------------------------------------------------------


def from_now(hands: Hands, name: str, seconds: int) -> int:
    """Return the time to live that ends so many seconds from now."""
    ended = parse_time(hands.job(name)["status"]["completionTime"])
    return seconds + int((datetime.now(UTC) - ended).total_seconds())


@pytest.mark.usefixtures("operator")
def test_a_finished_job_is_deleted_after_what_it_owns(hands: Hands) -> None:
    succeed(hands, "kept")
    hands.await_phase("kept", "Succeeded")
    succeed(hands, "train", ttlSecondsAfterFinished=0)
    job = await_job_deletion(hands, "train")
    assert job["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert job["status"]["phase"] == "Succeeded"
    hands.finish_job_deletion(job)
    eventually(lambda: not hands.api.get(f"{hands.jobs}/train").ok)
    assert not is_deleted(hands, "kept")


@pytest.mark.usefixtures("operator")
def test_a_time_to_live_is_lowered_raised_and_removed_while_the_job_waits(hands: Hands) -> None:
    for name in ("raised", "removed", "lowered"):
        succeed(hands, name, ttlSecondsAfterFinished=100_000)
        hands.await_phase(name, "Succeeded")
    for name, seconds in (("raised", 100_000), ("removed", None)):
        hands.edit(name, ttlSecondsAfterFinished=from_now(hands, name, 12))
        hands.edit(name, ttlSecondsAfterFinished=seconds)
    # It is deleted later than the others would have been.
    hands.edit("lowered", ttlSecondsAfterFinished=from_now(hands, "lowered", 14))
    await_job_deletion(hands, "lowered")
    assert not is_deleted(hands, "raised")
    assert not is_deleted(hands, "removed")


def test_a_time_to_live_that_ends_while_no_operator_runs_is_made_up_for(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        succeed(hands, "train")
        hands.await_phase("train", "Succeeded")
        succeed(hands, "later", ttlSecondsAfterFinished=100_000)
        hands.await_phase("later", "Succeeded")
    hands.edit("train", ttlSecondsAfterFinished=0)
    with run_operator(kubeconfig, settings_for(hands.namespace)) as restarted:
        await_job_deletion(hands, "train")
        assert not is_deleted(hands, "later")
        # A write is seen on the server before its answer is counted.
        eventually(restarted.writes)
        assert set(restarted.writes()) == {("DELETE", "frayjobs.fray.dev")}


@pytest.mark.usefixtures("operator")
def test_a_succeeded_parent_stays_while_its_children_run(hands: Hands) -> None:
    hands.submit("train", suspend=True, ttlSecondsAfterFinished=0)
    hands.await_phase("train", "Suspended")
    hands.submit("child", parent={"name": "train", "root": "train"})
    jobset = hands.await_jobset("child-a1")
    hands.edit("train", suspend=False)
    parents = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(parents)
    hands.exit(pod, 0)
    hands.complete(parents)
    hands.await_phase("train", "Succeeded")
    succeed(hands, "other", ttlSecondsAfterFinished=0)
    await_job_deletion(hands, "other")  # which is no sooner due
    assert not is_deleted(hands, "train")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("child", "Running")
    hands.exit(pod, 0)
    hands.complete(jobset)
    await_job_deletion(hands, "train")
    assert hands.await_phase("child", "Succeeded")


# --- attempts -------------------------------------------------------------------------------------------


def test_five_attempts_leave_the_jobsets_of_three(hands: Hands, operator: OperatorThread) -> None:
    hands.submit("train", retries={"failures": 4})
    for number in range(1, 6):
        jobset = hands.await_jobset(f"train-a{number}")
        (pod,) = hands.run_all(jobset)
        hands.await_phase("train", "Running")
        if number > 3:
            hands.finish_deletion(await_deletion(hands, f"train-a{number - 3}"))
        hands.exit(pod, number)
        hands.fail(jobset)
    job = hands.await_phase("train", "Failed")
    assert [attempt["number"] for attempt in job["status"]["attempts"]] == [1, 2, 3, 4, 5]
    left = {jobset["metadata"]["name"] for jobset in hands.list(hands.jobsets)}
    assert left == {"train-a3", "train-a4", "train-a5"}
    assert operator.writes()["DELETE", "jobsets.jobset.x-k8s.io"] == 2


# --- children -------------------------------------------------------------------------------------------


def launch(hands: Hands) -> dict[str, Any]:
    """Have a parent, its child and that one's child; return the JobSet of the child, which runs."""
    hands.submit("train")
    hands.run_all(hands.await_jobset("train-a1"))
    hands.await_phase("train", "Running")
    hands.submit("child", parent={"name": "train", "root": "train"})
    jobset = hands.await_jobset("child-a1")
    hands.run_all(jobset)
    hands.await_phase("child", "Running")
    hands.submit("grandchild", suspend=True, parent={"name": "child", "root": "train"})
    hands.await_phase("grandchild", "Suspended")
    return jobset


def fail(hands: Hands) -> None:
    """Have the parent fail."""
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.pods_of(jobset)
    hands.exit(pod, 3)
    hands.fail(jobset)


def assert_stopped(hands: Hands, told: str) -> None:
    """The child's hosts are ended, it says who stopped it, and its own child follows."""
    hands.finish_deletion(await_deletion(hands, "child-a1"))
    child = hands.await_phase("child", "Stopped")
    assert child["spec"]["stopped"] is True
    assert condition(child, "Stopped")["message"] == condition(child, "Finished")["message"] == told
    assert hands.await_event("child", "Stopped")["message"] == f"StopRequested: {told}"
    assert told in hands.await_event("child", "AttemptEnded")["message"]
    grandchild = hands.await_phase("grandchild", "Stopped")
    assert condition(grandchild, "Stopped")["message"] == "its parent child was stopped"


@pytest.mark.usefixtures("operator")
def test_children_end_with_a_parent_that_fails(hands: Hands) -> None:
    launch(hands)
    fail(hands)
    hands.await_phase("train", "Failed")
    assert_stopped(hands, "its parent train failed")


@pytest.mark.usefixtures("operator")
def test_children_end_with_a_parent_that_is_deleted(hands: Hands) -> None:
    launch(hands)
    hands.delete_job("train")
    assert_stopped(hands, "its parent train was deleted")


def test_children_end_with_a_parent_that_is_deleted_while_no_operator_runs(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        launch(hands)
    hands.delete_job("train")
    with run_operator(kubeconfig, settings_for(hands.namespace)):
        assert_stopped(hands, "its parent train was deleted")


@pytest.mark.usefixtures("operator")
def test_a_child_runs_on_when_its_parent_succeeds(hands: Hands) -> None:
    jobset = launch(hands)
    parents = hands.await_jobset("train-a1")
    hands.exit(hands.pods_of(parents)[0], 0)
    hands.complete(parents)
    hands.await_phase("train", "Succeeded")
    (pod,) = hands.pods_of(jobset)
    hands.exit(pod, 0)
    hands.complete(jobset)
    assert not hands.await_phase("child", "Succeeded")["spec"].get("stopped")
    hands.edit("grandchild", suspend=False)
    hands.await_jobset("grandchild-a1")
