"""Why a job doesn't run yet: what scheduler, kubelet and Job controller say becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.plan import complaints
from fray_operator import observe, shared_answers
from tests.integration.controller.conftest import NodeMaker, SettingsFor
from tests.integration.controller.hands import Hands, condition
from tests.integration.controller.operator_thread import OperatorThread, run_operator

TPU = {"resources": {"tpu": {"type": "v5p-8"}}}
SCHEDULER = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


def tpu_labels(accelerator: str = "tpu-v5p-slice", topology: str = "2x2x1") -> dict[str, str]:
    return {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }


@pytest.fixture
def start(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> Iterator[Callable[..., OperatorThread]]:
    """Starts the operator once the nodes are there: it reads them every now and then only."""
    with_it: list[Any] = []

    def begin(**settings: Any) -> OperatorThread:
        with_it.append(run_operator(kubeconfig, settings_for(hands.namespace, **settings)))
        running: OperatorThread = with_it[-1].__enter__()
        return running

    yield begin
    for each in with_it:
        each.__exit__(None, None, None)


def scheduled_as(hands: Hands, reason: str) -> str:
    """Wait until the job isn't scheduled for this reason; return the sentence."""
    told = hands.await_condition("train", "Scheduled", status="False", reason=reason)
    job = hands.job("train")
    assert condition(job, "Running")["message"] == told["message"]
    assert (job["status"]["phase"], job["status"]["reason"]) == ("Pending", reason)
    return str(told["message"])


def refuse_first_pod(hands: Hands, message: str = SCHEDULER) -> None:
    pod, *_ = hands.create_pods(hands.await_jobset("train-a1"))
    hands.refuse_pod(pod, message)


def test_a_missing_node_pool_is_named_with_those_there_are(
    hands: Hands, make_node: NodeMaker, start: Callable[..., OperatorThread]
) -> None:
    make_node("tpu-1", pool="v6e", labels=tpu_labels("tpu-v6e-slice", "2x4"))
    make_node("cpu-1", pool="default", labels={})
    start()
    hands.submit("train", **TPU)
    refuse_first_pod(hands)
    assert scheduled_as(hands, "NoMatchingNodePool") == (
        "no node has cloud.google.com/gke-tpu-accelerator=tpu-v5p-slice, "
        "cloud.google.com/gke-tpu-topology=2x2x1; "
        "the job needs 1 node with tpu-v5p-slice 2x2x1; "
        "the TPU node pools are v6e (tpu-v6e-slice 2x4, 1 node)"
    )


def test_zones_without_such_nodes_are_named(
    hands: Hands, make_node: NodeMaker, start: Callable[..., OperatorThread]
) -> None:
    make_node("tpu-2", pool="v5p", labels={**tpu_labels(), "topology.kubernetes.io/zone": "us-east5-a"})
    start()
    hands.submit("train", **TPU, placement={"zones": ["us-east5-b", "us-east5-c"]})
    refuse_first_pod(hands)
    told = scheduled_as(hands, "NoMatchingNodePool")
    assert "topology.kubernetes.io/zone In us-east5-b/us-east5-c" in told
    assert told.endswith("the TPU node pools are v5p (tpu-v5p-slice 2x2x1, 1 node)")


def test_matching_nodes_without_room_are_counted(
    hands: Hands, make_node: NodeMaker, start: Callable[..., OperatorThread]
) -> None:
    make_node("tpu-3", pool="v5p", labels=tpu_labels())
    start()
    hands.submit("train", **TPU)
    refuse_first_pod(hands, "0/1 nodes are available: 1 Insufficient google.com/tpu.")
    told = scheduled_as(hands, "InsufficientCapacity")
    assert told.startswith("1 node matches, but none has room for ")
    assert told.endswith("4 google.com/tpu: 0/1 nodes are available: 1 Insufficient google.com/tpu.")


def test_an_untolerated_taint_is_named(
    hands: Hands, make_node: NodeMaker, start: Callable[..., OperatorThread]
) -> None:
    make_node(
        "tpu-4",
        pool="v5p",
        labels=tpu_labels(),
        taint={"key": "team", "value": "blue", "effect": "NoSchedule"},
    )
    start()
    hands.submit("train", **TPU)
    refuse_first_pod(hands, "0/1 nodes are available: 1 node(s) had untolerated taint {team: blue}.")
    told = scheduled_as(hands, "UntoleratedTaint")
    assert told == "1 node matches, but the job doesn't tolerate its taint team=blue:NoSchedule"


def test_an_installation_that_may_not_read_nodes_repeats_the_scheduler(
    hands: Hands, start: Callable[..., OperatorThread]
) -> None:
    operator = start(read_nodes=False)
    hands.submit("train", **TPU)
    refuse_first_pod(hands)
    assert scheduled_as(hands, "Unschedulable") == f"no node takes the pods: {SCHEDULER}"
    assert ("GET", "nodes", 200) not in operator.calls


@pytest.mark.parametrize(
    ("held", "reason", "told"),
    [
        (
            ("ImagePullBackOff", 'Back-off pulling image "image": ErrImagePull: not found'),
            "ImagePullFailed",
            "image 'image' can't be pulled: not found",
        ),
        (
            ("CreateContainerConfigError", 'secret "token" not found'),
            "ContainerConfigInvalid",
            "container 'main' can't be set up (CreateContainerConfigError): secret \"token\" not found",
        ),
    ],
)
def test_a_container_that_cant_be_made_is_explained_and_forgotten_once_it_runs(
    hands: Hands, start: Callable[..., OperatorThread], held: tuple[str, str], reason: str, told: str
) -> None:
    start()
    hands.submit("train")
    (pod,) = hands.create_pods(hands.await_jobset("train-a1"))
    hands.bind(pod)
    hands.hold(pod, *held)
    assert hands.await_condition("train", "Running", status="False", reason=reason)["message"] == told
    assert condition(hands.job("train"), "Scheduled")["status"] == "True"
    hands.run(pod)
    hands.await_condition("train", "Running", status="True", reason="AllHostsRunning")
    (event,) = [e for e in hands.events_of("train") if e["reason"] == reason]
    assert (event["type"], event["message"]) == ("Warning", told)


@pytest.mark.parametrize(
    ("said", "reason", "told"),
    [
        (
            'Error creating: pods "train-a1-slice-0-0-" is forbidden: exceeded quota: team, '
            "requested: cpu=8, "
            "used: cpu=4, limited: cpu=10",
            "QuotaExceeded",
            "a quota of the namespace is used up: Error creating: a pod is forbidden",
        ),
        (
            'Error creating: admission webhook "policy.example.com" denied the request: no image from there',
            "AdmissionRefused",
            "the cluster refused to create it (pods): Error creating: "
            'admission webhook "policy.example.com" denied',
        ),
    ],
)
def test_pods_that_are_refused_are_explained_by_the_job_controllers_event(
    hands: Hands,
    start: Callable[..., OperatorThread],
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    reason: str,
    told: str,
) -> None:
    for module in (observe, complaints):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(shared_answers, "EVENTS_SECONDS", 0.05)
    start()
    hands.submit("train", replicas=2)
    jobset = hands.await_jobset("train-a1")
    hands.report_create_failure(jobset, "Error creating: follower pod node selector not set yet")
    hands.report_create_failure(jobset, said)
    assert scheduled_as(hands, reason).startswith(told)
    hands.run_all(jobset)
    hands.await_phase("train", "Running")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('jobs.batch "train-a1-slice-0" is forbidden: exceeded quota: team', "QuotaExceeded"),
        ('Job.batch "train-a1-slice-0" is invalid: spec.template.labels: Invalid value', "AdmissionRefused"),
    ],
)
def test_jobs_that_are_refused_are_explained_by_the_jobsets_event(
    hands: Hands,
    start: Callable[..., OperatorThread],
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    reason: str,
) -> None:
    for module in (observe, complaints):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(shared_answers, "EVENTS_SECONDS", 0.05)
    start()
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    hands.report_job_create_failure({"metadata": {"name": "train-a"}}, "exceeded quota: of another job")
    hands.report_job_create_failure(jobset, said)
    assert scheduled_as(hands, reason).endswith(said)
    hands.run_all(jobset)
    hands.await_phase("train", "Running")


def test_events_about_other_jobsets_explain_nothing(
    hands: Hands, start: Callable[..., OperatorThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (observe, complaints):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(shared_answers, "EVENTS_SECONDS", 0.05)
    operator = start()
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    # What the Job of a FrayJob called train-a1-slice would be called.
    other = {"metadata": {"name": "train-a1-slice-a1"}}
    hands.report_create_failure(other, "exceeded quota: of another job")
    hands.await_job("train", lambda _: operator.calls["GET", "events", 200] >= 2)
    assert condition(hands.job("train"), "Scheduled")["reason"] == "HostsStarting"
    hands.run_all(jobset)
    hands.await_phase("train", "Running")
