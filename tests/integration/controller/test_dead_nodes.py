"""Nodes that die under an attempt: the charge, and the pod that the API server keeps for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fray.plan import node_evidence
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread
from tests.integration.controller.test_transitions import attempt_of

pytestmark = pytest.mark.usefixtures("operator")

NodeMaker = Callable[[str, str], None]


@pytest.fixture
def set_node(hands: Hands) -> Iterator[NodeMaker]:
    """Makes a node of which the control plane says since an hour whether it is ready; gone after the test."""
    names: set[str] = set()

    def make(name: str, ready: str) -> None:
        if name not in names:
            names.add(name)
            assert hands.api.post("/api/v1/nodes", {"metadata": {"name": name}}).ok
        since = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": ready, "reason": "NodeStatusUnknown", "message": ""}
        told = {"status": {"conditions": [{**condition, "lastTransitionTime": since}]}}
        assert hands.api.merge(f"/api/v1/nodes/{name}/status", told).ok
        # Admission taints new nodes until a controller has seen them ready.
        assert hands.api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}).ok

    yield make
    for name in names:
        assert hands.api.delete(f"/api/v1/nodes/{name}").ok


def test_a_pod_that_no_kubelet_will_end_keeps_neither_its_attempt_nor_the_next(
    hands: Hands, set_node: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_evidence, "PATIENCE", timedelta(seconds=0.2))
    alive, dead = f"alive-{hands.namespace}", f"dead-{hands.namespace}"
    set_node(alive, "True")
    set_node(dead, "Unknown")
    hands.submit("train", replicas=2)
    jobset = hands.await_jobset("train-a1")
    pods = hands.create_pods(jobset)
    for pod, node in zip(pods, (alive, dead), strict=True):
        hands.bind(pod, node)
        hands.run(pod)
    hands.await_phase("train", "Running")
    # What the Job controller does when a pod has failed; with a second's grace, which nobody keeps.
    hands.exit(pods[0], 1)
    path = f"{hands.core}/pods/{pods[1]['metadata']['name']}"
    assert hands.api.request("DELETE", path, {"gracePeriodSeconds": 1}).ok
    hands.fail(jobset, pods=[])
    hands.await_jobset("train-a2")
    job = hands.job("train")
    first = attempt_of(job, 1)
    assert (first["verdict"], first["reason"]) == ("Preemption", "Disrupted")
    assert f"rank 1 (slice 0, host 1) was taken away (its node {dead} has been silent" in first["message"]
    left = next(
        pod for pod in hands.pods_of(jobset) if pod["metadata"]["name"] == pods[1]["metadata"]["name"]
    )
    assert (left["status"]["phase"], "deletionTimestamp" in left["metadata"]) == ("Running", True)


def test_a_pod_that_its_kubelet_is_slow_to_end_is_waited_for(
    operator: OperatorThread, hands: Hands, set_node: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_evidence, "PATIENCE", timedelta(seconds=0.2))
    monkeypatch.setattr(node_evidence, "LOOK_SECONDS", 0.1)
    slow = f"slow-{hands.namespace}"
    set_node(slow, "True")
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.create_pods(jobset)
    hands.bind(pod, slow)
    hands.run(pod)
    hands.await_phase("train", "Running")
    path = f"{hands.core}/pods/{pod['metadata']['name']}"
    assert hands.api.request("DELETE", path, {"gracePeriodSeconds": 1}).ok
    hands.edit("train", suspend=True)
    hands.await_phase("train", "Stopping")
    passes = operator.passes()
    eventually(lambda: operator.passes() >= passes + 10)
    assert "verdict" not in attempt_of(hands.job("train"), 1)
    hands.exit(pod, 143)
    eventually(lambda: "verdict" in attempt_of(hands.job("train"), 1))
