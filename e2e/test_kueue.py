"""Queues of the real Kueue: who waits, why, who must give way and resumes, and that quota is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.cluster import provider
from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace, build_job, build_shell, until_told
from e2e.queues import QueueMaker, open_queue_maker
from fray.vocabulary import LABEL_ROLE, Role

V5P_SLICE = {"tpu": {"type": "v5p-16"}}
QUEUE = {"name": "team"}
NODE_POOL, HOST = "cloud.google.com/gke-nodepool", "kubernetes.io/hostname"
BLOCK, RACK = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
UNCHARGED = {"failuresUsed": 0, "preemptionsUsed": 0}


@pytest.fixture(scope="module")
def _kueue(layout: object, progress: Callable[[str], None]) -> None:
    provider.install_kueue(progress=progress)


@pytest.fixture
def queues(_kueue: None, jobs: JobNamespace) -> Iterator[QueueMaker]:
    """Kueue for the namespace of the test."""
    with open_queue_maker(jobs) as maker:
        yield maker


@pytest.fixture
def _racks(jobs: JobNamespace) -> Iterator[None]:
    """Node pools in racks of one block, as GKE's labels tell of them."""
    nodes = {
        node["metadata"]["name"]: node["metadata"]["labels"][NODE_POOL]
        for node in jobs.kubectl.items("nodes", f"--selector={NODE_POOL}")
    }
    for node, pool in nodes.items():
        jobs.kubectl("label", "--overwrite", "node", node, f"{BLOCK}=one", f"{RACK}=of-{pool}")
    yield
    for node in nodes:
        jobs.kubectl("label", "node", node, f"{BLOCK}-", f"{RACK}-")


def submit(jobs: JobNamespace, name: str, script: str = until_told(), **spec: Any) -> None:
    jobs.submit(build_shell(name, script, **({"queue": QUEUE} | spec)))


def await_words(jobs: JobNamespace, name: str, words: str, *, reason: str = "WaitingForQueue") -> str:
    """Wait until a condition says why a job waits; returns all that it says."""
    jobs.await_reason(name, reason)
    await_condition(
        f"{name} says {words!r}",
        lambda: words in jobs.condition(name, "Scheduled")["message"],
        timeout=180,
        details=lambda: str(jobs.condition(name, "Scheduled")),
    )
    message: str = jobs.condition(name, "Scheduled")["message"]
    return message


def edit(jobs: JobNamespace, name: str, field: str, *, value: bool) -> None:
    patch = f'{{"spec": {{"{field}": {str(value).lower()}}}}}'
    jobs.kubectl("patch", f"fj/{name}", "--type=merge", f"--patch={patch}")


def scale(jobs: JobNamespace, count: int) -> None:
    jobs.kubectl("scale", "frayjob/elastic", f"--replicas={count}")


def await_workers(jobs: JobNamespace, count: int) -> set[str]:
    """Wait until so many workers of the job take tasks; returns the uids of their pods."""
    jobs.await_workers("elastic", f"{count} take tasks", lambda told: told.get("ready") == count)
    selector = f"--selector={LABEL_ROLE}={Role.WORKER}"
    pods = jobs.kubectl.items("pods", selector, "--field-selector=status.phase=Running")
    return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def verdicts(status: dict[str, Any]) -> list[str]:
    return [attempt["verdict"] for attempt in status["attempts"]]


def test_a_gang_waits_for_quota_with_kueues_words_and_runs_after_the_first(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    queues.make("team", {"pods": 2})
    submit(jobs, "first", replicas=2)
    jobs.await_job("first", "condition=Running")
    submit(jobs, "second", replicas=2)
    message = await_words(jobs, "second", "insufficient unused quota for pods")
    assert message.startswith("Kueue has not admitted it to queue team: ")
    assert "WaitingForQueue" in jobs.kubectl("get", "fj", "second")
    jobs.await_description("second", message, "Normal WaitingForQueue")
    assert jobs.pods("second") == []

    jobs.tell("first")
    jobs.await_job("second", "condition=Running")
    assert queues.admitted() == {"second-a1"}
    jobs.tell("second")
    for name in ("first", "second"):
        status = jobs.await_end(name)
        assert verdicts(status) == ["Success"], status
    await_condition("quota is free", lambda: not queues.admitted(), timeout=180)


def test_a_job_of_higher_priority_takes_the_place_of_one_that_keeps_its_place_in_the_queue_uncharged(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    queues.make("team", {"pods": 2})
    urgent = queues.make_priority(1000)
    submit(jobs, "patient", until_told(then='test "$FRAY_ATTEMPT" = 2'), replicas=2)
    jobs.await_job("patient", "condition=Running")
    jobset = jobs.kubectl.get("jobset", "patient-a1")
    submit(jobs, "later", replicas=2)
    await_words(jobs, "later", "insufficient unused quota for pods")
    submit(jobs, "urgent", replicas=2, queue={**QUEUE, "priorityClass": urgent})
    jobs.await_job("urgent", "condition=Running")
    await_words(jobs, "patient", "insufficient unused quota for pods")
    (evicted, waiting) = jobs.job("patient")["status"]["attempts"]
    assert (evicted["verdict"], evicted["reason"]) == ("Suspended", "Suspended")
    assert evicted["message"].startswith(
        "Kueue evicted it from queue team (Preempted: Preempted to accommodate a workload "
    )
    assert "verdict" not in waiting
    assert evicted["jobSet"] == waiting["jobSet"] == "patient-a1"
    jobs.await_description("patient", evicted["message"])

    jobs.tell("urgent")
    jobs.await_job("patient", "condition=Running")
    assert queues.admitted() == {"patient-a1"}
    assert jobs.kubectl.get("jobset", "patient-a1")["metadata"]["uid"] == jobset["metadata"]["uid"]
    jobs.tell("patient", attempt=2)
    status = jobs.await_end("patient")
    assert verdicts(status) == ["Suspended", "Success"], status
    assert status["retries"] == UNCHARGED
    jobs.await_job("later", "condition=Running")
    jobs.tell("later")
    for name in ("urgent", "later"):
        assert verdicts(jobs.await_end(name)) == ["Success"]


def test_quota_is_free_again_after_a_stop_a_deletion_a_suspension_and_in_a_pause(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    queues.make("team", {"pods": 1})
    submit(jobs, "stopped")
    jobs.await_job("stopped", "condition=Running")
    submit(jobs, "deleted")
    edit(jobs, "stopped", "stopped", value=True)
    jobs.await_job("deleted", "condition=Running")
    submit(jobs, "paused")
    jobs.kubectl("delete", "fj/deleted", "--wait=false")
    jobs.await_job("paused", "condition=Running")
    fails_once = 'if test "$FRAY_ATTEMPT" = 1; then exit 1; fi'
    submit(jobs, "retried", fails_once, retries={"failures": 1})
    edit(jobs, "paused", "suspend", value=True)
    assert verdicts(jobs.await_end("retried")) == ["Failure", "Success"]
    edit(jobs, "paused", "suspend", value=False)
    jobs.await_job("paused", "condition=Running")
    assert queues.admitted() == {"paused-a2"}
    jobs.tell("paused", attempt=2)
    status = jobs.await_end("paused")
    assert (verdicts(status), status["retries"]) == (["Suspended", "Success"], UNCHARGED)
    assert jobs.await_end("stopped")["phase"] == "Stopped"


def test_what_is_wrong_with_a_queue_is_told_and_the_job_runs_once_it_is_right(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    submit(jobs, "lost", "true")
    submit(jobs, "ranked", "true", queue={**QUEUE, "priorityClass": jobs.name})
    await_words(jobs, "lost", "LocalQueue team doesn't exist", reason="QueueInadmissible")
    await_words(jobs, "ranked", f"is there a WorkloadPriorityClass {jobs.name}?")
    queues.make("team", {"pods": 2})
    assert verdicts(jobs.await_end("lost")) == ["Success"]


def test_slices_keep_their_pools_and_take_the_labels_of_their_flavor(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    nodes = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice", "kubernetes.io/os": "linux"}
    queues.make("team", {"google.com/tpu": 16}, nodes=nodes)
    submit(jobs, "slices", replicas=2, resources=V5P_SLICE)
    jobs.await_job("slices", "condition=Running")
    pods = jobs.pods("slices")
    pools = [pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods]
    assert pools[0] == pools[1] != pools[2] == pools[3]
    assert [nodes.items() <= pod["spec"]["nodeSelector"].items() for pod in pods] == [True] * 4
    submit(jobs, "next", "true", resources=V5P_SLICE)
    await_words(jobs, "next", "insufficient unused quota for google.com/tpu")
    jobs.tell("slices")
    for name in ("slices", "next"):
        assert verdicts(jobs.await_end(name)) == ["Success"]


@pytest.mark.usefixtures("_racks")
def test_a_queue_s_topology_keeps_slices_together_in_place_of_jobset(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    nodes = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"}
    queues.make("team", {"google.com/tpu": 16}, nodes=nodes, levels=[BLOCK, RACK, NODE_POOL, HOST])
    submit(jobs, "slices", replicas=2, resources=V5P_SLICE)
    jobs.await_job("slices", "condition=Running")
    assert EXCLUSIVE not in jobs.kubectl.get("jobset", "slices-a1")["metadata"].get("annotations", {})
    pods = jobs.pods("slices")
    annotations = pods[0]["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-slice-required-topology"] == NODE_POOL
    assert annotations["kueue.x-k8s.io/podset-slice-size"] == "2"
    assert annotations["kueue.x-k8s.io/podset-preferred-topology"] == RACK
    pools = [pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods]
    assert pools[0] == pools[1] != pools[2] == pools[3]
    assert all(pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"] for pod in pods)
    jobs.tell("slices")
    assert verdicts(jobs.await_end("slices")) == ["Success"]


def test_workers_in_a_queue_change_in_number_within_the_quota_while_others_run(
    jobs: JobNamespace, queues: QueueMaker
) -> None:
    queues.make("team", {"pods": 4, "cpu": 100, "memory": 10**12})
    small = {"cpu": "50m", "memory": "128Mi"}
    workers = {"replicas": 1, "resources": small}
    command = ["sh", "-c", until_told()]
    jobs.submit(build_job("elastic", command, queue=QUEUE, resources=small, workers=workers))
    (first,) = await_workers(jobs, 1)
    scale(jobs, 3)
    three = await_workers(jobs, 3)
    assert first in three
    # One more than there is quota for: it waits, and nobody is evicted for it.
    scale(jobs, 4)
    await_condition(
        "Kueue says that there is no quota for four",
        lambda: "insufficient unused quota for pods" in str(jobs.kubectl.items("workloads.kueue.x-k8s.io")),
        timeout=180,
    )
    assert await_workers(jobs, 3) == three
    # Quota of fewer is free for others at once.
    scale(jobs, 1)
    assert await_workers(jobs, 1) <= three
    submit(jobs, "other", replicas=2)
    jobs.await_job("other", "condition=Running")
    for name in ("elastic", "other"):
        jobs.tell(name)
        status = jobs.await_end(name)
        assert verdicts(status) == ["Success"], status
    await_condition("quota is free", lambda: not queues.admitted(), timeout=180)
