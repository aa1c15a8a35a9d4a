"""A job that can't run says why in words an engineer can act on, and runs once the reason is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.layout import Host, Layout
from e2e.cluster.provider import crash_host, restore_host
from e2e.job_namespace import JobNamespace, build_job, build_shell, until_told

POOL = "cloud.google.com/gke-nodepool"
V5P_SLICE = {"tpu": {"type": "v5p-16"}}
LATE_POOL = "tpu-b"


@pytest.fixture
def absent(api: Api, layout: Layout) -> Iterator[list[Host]]:
    """The hosts of a node pool that is not there; those left in the list come back after the test."""
    absent = list(layout.pool(LATE_POOL))
    for host in absent:
        crash_host(host)
        assert api.delete(f"/api/v1/nodes/{host.name}").ok
    yield absent
    for host in absent:
        restore_host(host)


def test_an_unschedulable_job_names_the_pools_there_are_and_runs_when_its_own_appears(
    jobs: JobNamespace, absent: list[Host]
) -> None:
    placement = {"nodePool": LATE_POOL}
    jobs.submit(build_shell("late", "echo here at last", resources=V5P_SLICE, placement=placement))
    jobs.await_reason("late", "NoMatchingNodePool")
    message = jobs.condition("late", "Scheduled")["message"]
    assert f"{POOL}={LATE_POOL}" in message
    assert "the TPU node pools are tpu-a (tpu-v5p-slice 2x2x2, 2 nodes)" in message
    assert "NoMatchingNodePool" in jobs.kubectl("get", "fj", "late")
    jobs.await_description("late", message)

    while absent:
        restore_host(absent[0])
        del absent[0]
    status = jobs.await_end("late")
    assert status["phase"] == "Succeeded", status
    # It waited all the time in the one attempt: waiting for hardware costs nothing.
    assert len(status["attempts"]) == 1
    assert jobs.logs("late") == ["here at last\n"] * 2


def test_a_job_that_finds_all_slices_taken_says_so_and_runs_after_them(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("first", until_told(), replicas=2, resources=V5P_SLICE))
    jobs.await_job("first", "condition=Running")
    jobs.submit(build_shell("second", "true", replicas=2, resources=V5P_SLICE))
    jobs.await_reason("second", "InsufficientCapacity")
    # The operator looks at the nodes every now and then, not each time.
    await_condition(
        "it says how many nodes there are",
        lambda: "4 nodes match, but none has room" in jobs.condition("second", "Scheduled")["message"],
        timeout=180,
    )
    jobs.tell("first")
    assert jobs.await_end("first")["phase"] == "Succeeded"
    assert jobs.await_end("second")["phase"] == "Succeeded"


def test_an_image_that_cannot_be_pulled_is_named(jobs: JobNamespace) -> None:
    environment = {"image": "fray.test/absent:1"}
    jobs.submit(build_job("typo", ["true"], environment=environment))
    jobs.await_reason("typo", "ImagePullFailed")
    assert "fray.test/absent:1" in jobs.condition("typo", "Running")["message"]
    # Placed it is: only the image is missing.
    assert jobs.condition("typo", "Scheduled")["status"] == "True"
