"""Objects that the API server takes, and that somebody made to harm: the jobs of others go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.vocabulary import LABEL_JOB
from tests.integration.controller.hands import Hands
from tests.integration.controller.operator_subprocess import OperatorSubprocess
from tests.integration.controller.operator_thread import OperatorThread

DEPTH = 5_000
"""Of an object; the API server takes up to 10,000, and Python reads 1,000 unless it is told otherwise."""


@pytest.fixture
def deep_reader() -> Iterator[None]:
    """Lets the test itself read what it has written."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(3 * DEPTH)
    yield
    sys.setrecursionlimit(usual)


@pytest.fixture
def swept(hands: Hands, deep_reader: None) -> Iterator[Hands]:
    """Controllers of a namespace whose jobs end with the test: other operators read all that there is."""
    yield hands
    for collection in (hands.jobs, hands.jobsets):
        assert hands.api.delete(collection).ok
        assert hands.list(collection) == []


def test_a_process_outlives_objects_that_are_made_to_end_it(
    control_plane: ControlPlane, swept: Hands, tmp_path: Path, new_port: Callable[[], int]
) -> None:
    hands = swept
    deep: dict[str, Any] = {}
    for _ in range(DEPTH):
        deep = {"k": deep}
    empty = {"metadata": {"name": "nobodys", "labels": {LABEL_JOB: ""}}}
    pod = {**empty, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    assert hands.api.post(f"{hands.core}/pods", pod).status == 201
    hands.submit("deep", podTemplate={"spec": {"affinity": deep}})
    operator = OperatorSubprocess(
        control_plane.kubeconfig,
        tmp_path,
        name="first",
        port=new_port(),
        FRAY_NAMESPACES=hands.namespace,
        FRAY_LEASE_NAMESPACE=hands.namespace,
    )
    with operator:
        hands.submit("train")  # listed, or watched
        hands.await_jobset("train-a1")
        hands.submit("deeper", podTemplate={"spec": {"affinity": deep}})
        hands.submit("second")
        hands.await_jobset("second-a1")
        assert operator.process.poll() is None, operator.log


def test_copies_of_a_jobs_objects_that_nothing_of_it_owns_change_nothing_and_block_nothing(
    operator: OperatorThread, hands: Hands
) -> None:
    hands.submit("train", retries={"failures": 1})
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    forged = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    for number, owners in enumerate(([], [{**pod["metadata"]["ownerReferences"][0], "uid": "another"}])):
        metadata = {**forged, "name": f"copy-{number}", "ownerReferences": owners}
        copy = hands.api.post(f"{hands.core}/pods", {"metadata": metadata, "spec": pod["spec"]})
        assert copy.status == 201, copy.body
        hands.exit(copy.body, number)
    # The operator has seen the copies when it has seen what came after.
    hands.exit(pod, 1)
    job = hands.await_job("train", lambda job: "reason" in job["status"]["attempts"][0])
    assert job["status"]["attempts"][0]["pod"] == pod["metadata"]["name"]
    living = hands.api.post(
        f"{hands.core}/pods", {"metadata": {**forged, "name": "copy-2"}, "spec": pod["spec"]}
    )
    hands.run(living.body)
    hands.fail(jobset, [])
    # A copy that runs on blocks no further attempt.
    hands.await_jobset("train-a2")
