"""Nodes that fail a job's hosts again and again: the next attempt goes elsewhere, and comes back later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, Manifest, rank
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.controller.test_transitions import attempt_of, await_deletion

RETRIES = {"failures": 9, "preemptions": 9}
UNHEALTHY = "Allocate failed due to no healthy devices present, which is unexpected"
FAULT = f"UnexpectedAdmissionError: Pod was rejected: {UNHEALTHY}"
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
LONG_AGO = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def start(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> Iterator[Callable[..., OperatorThread]]:
    """Starts an operator with settings of the test's own."""
    running: list[Any] = []

    def begin(**settings: Any) -> OperatorThread:
        running.append(run_operator(kubeconfig, settings_for(hands.namespace, **settings)))
        operator: OperatorThread = running[-1].__enter__()
        return operator

    yield begin
    for each in running:
        each.__exit__(None, None, None)


@pytest.fixture
def pool(hands: Hands) -> Iterator[str]:
    """A node pool of two hosts of a TPU slice."""
    name = f"pool-{hands.namespace}"
    for index in range(2):
        labels = {"cloud.google.com/gke-nodepool": name}
        made = hands.api.post("/api/v1/nodes", {"metadata": {"name": f"{name}-{index}", "labels": labels}})
        assert made.ok, made.body
    yield name
    for index in range(2):
        assert hands.api.delete(f"/api/v1/nodes/{name}-{index}").ok


def refuse_one_host(hands: Hands, number: int, node: str) -> None:
    """Let one node refuse the second host of an attempt, while the first runs elsewhere."""
    jobset = hands.await_jobset(f"train-a{number}")
    first, second = sorted(hands.create_pods(jobset), key=rank)
    hands.bind(first, "node-1")
    hands.run(first)
    hands.bind(second, node)
    hands.reject(second, "UnexpectedAdmissionError", UNHEALTHY)
    hands.fail(jobset)


def affinity_of(jobset: Manifest) -> list[Any]:
    (group,) = jobset["spec"]["replicatedJobs"]
    affinity = group["template"]["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [(e["key"], e["operator"], e["values"]) for term in terms for e in term["matchExpressions"]]


def test_the_third_attempt_keeps_off_a_node_that_refused_two_and_the_fourth_may_come_back(
    hands: Hands, start: Callable[..., OperatorThread]
) -> None:
    start(read_nodes=False)
    hands.submit("train", replicas=2, retries=RETRIES)
    for number in (1, 2):
        assert affinity_of(hands.await_jobset(f"train-a{number}")) == []
        refuse_one_host(hands, number, "node-7")
    third = hands.await_jobset("train-a3")
    assert affinity_of(third) == [("kubernetes.io/hostname", "NotIn", ["node-7"])]
    job = hands.job("train")
    (avoided,) = job["status"]["avoidedNodes"]
    assert (avoided["node"], avoided["reason"]) == (
        "node-7",
        f"hosts failed there in attempts 1 and 2: {FAULT}",
    )
    assert attempt_of(job, 2)["nodeFaults"] == [{"node": "node-7", "fault": FAULT}]

    for pod in hands.create_pods(third):
        hands.refuse_pod(pod, NO_NODE)
    told = hands.await_condition("train", "Scheduled", status="False", reason="NodesAvoided")
    assert told["message"] == (
        f"no node takes the pods: {NO_NODE}; avoided since hosts failed there: "
        f"node-7 until {avoided['until']}"
    )
    over = {"avoidedNodes": [{**avoided, "until": LONG_AGO}]}  # what an hour would do
    assert hands.api.merge(f"{hands.jobs}/train/status", {"status": over}).ok
    hands.finish_deletion(await_deletion(hands, "train-a3"))
    fourth = hands.await_jobset("train-a4")
    assert affinity_of(fourth) == []
    hands.run_all(fourth, node="node-7")
    job = hands.await_phase("train", "Running")
    assert job["status"]["avoidedNodes"] == []
    assert (attempt_of(job, 3)["verdict"], attempt_of(job, 3)["reason"]) == ("Unplaced", "NodesAvoided")
    used = job["status"]["retries"]
    assert used["failuresUsed"] + used["preemptionsUsed"] == 2


def test_a_slice_of_several_hosts_keeps_off_the_whole_pool(
    hands: Hands, start: Callable[..., OperatorThread], pool: str
) -> None:
    start()
    hands.submit("train", resources={"tpu": {"type": "v5p-16"}}, retries=RETRIES)
    for number in (1, 2):
        refuse_one_host(hands, number, f"{pool}-1")
    third = hands.await_jobset("train-a3")
    assert affinity_of(third) == [("cloud.google.com/gke-nodepool", "NotIn", [pool])]
    (avoided,) = hands.job("train")["status"]["avoidedNodes"]
    assert (avoided["node"], avoided["nodePool"]) == (f"{pool}-1", pool)


def test_a_program_that_fails_twice_on_a_node_may_come_back_to_it(
    hands: Hands, start: Callable[..., OperatorThread]
) -> None:
    start()
    hands.submit("train", retries=RETRIES)
    for number in (1, 2):
        jobset = hands.await_jobset(f"train-a{number}")
        (pod,) = hands.run_all(jobset, node="node-7")
        hands.exit(pod, 1, message="Traceback: ValueError")
        hands.fail(jobset)
    assert affinity_of(hands.await_jobset("train-a3")) == []
    assert hands.job("train")["status"]["avoidedNodes"] == []
