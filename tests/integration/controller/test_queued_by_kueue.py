"""A JobSet that Kueue suspends: why it waits, that it runs once admitted, and as what once it was evicted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.cluster.build import module_source
from e2e.cluster.keep_alive import KeepAliveApi
from fray.kube.resources import WORKLOADS
from fray.plan import complaints
from fray_operator import act, observe, shared_answers
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, Manifest, condition, eventually, now
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.controller.test_transitions import attempt_of, await_deletion
from tests.integration.frayjobs import CRD_COLLECTION, await_served

pytestmark = pytest.mark.usefixtures("impatient_operator")

CRD = "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml"
NO_QUOTA = "insufficient unused quota for pods in flavor default, 1 more needed"
HELD = "Kueue has not admitted it to queue team"
UNCHARGED = {"failuresUsed": 0, "preemptionsUsed": 0}


class Kueue:
    """Plays Kueue for the JobSets of one namespace."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.path = WORKLOADS[0].path(namespace=hands.namespace)

    def hold(self, jobset: Manifest) -> None:
        """Suspend a JobSet; Kueue's webhook does it before anybody has seen the JobSet."""
        self.hands.suspend(jobset)
        self._play_jobset(jobset, suspended=True)

    def make_workload(self, jobset: Manifest) -> None:
        """Make the Workload of a JobSet."""
        metadata = jobset["metadata"]
        owner = {"apiVersion": jobset["apiVersion"], "kind": "JobSet"}
        (group,) = jobset["spec"]["replicatedJobs"]
        template = group["template"]["spec"]["template"]
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": f"jobset-{metadata['name']}",
                "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
                "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}],
            },
            "spec": {
                "queueName": metadata["labels"]["kueue.x-k8s.io/queue-name"],
                "podSets": [{"name": group["name"], "count": group["replicas"], "template": template}],
            },
        }
        created = self.hands.api.post(self.path, body)
        assert created.ok, created.body

    def tell(self, jobset: Manifest, kind: str, status: str, reason: str, message: str) -> None:
        """Set the only condition of a JobSet's Workload."""
        told = {"type": kind, "status": status, "reason": reason, "message": message}
        path = f"{self.path}/jobset-{jobset['metadata']['name']}/status"
        status_ = {"conditions": [told | {"lastTransitionTime": now()}]}
        answer = self.hands.api.merge(path, {"status": status_})
        assert answer.ok, answer.body

    def set_active(self, jobset: Manifest, *, active: bool) -> None:
        """Deactivate a JobSet's Workload, or activate it again."""
        answer = self.hands.api.merge(
            f"{self.path}/jobset-{jobset['metadata']['name']}", {"spec": {"active": active}}
        )
        assert answer.ok, answer.body

    def admit(self, jobset: Manifest) -> Manifest:
        """Let a JobSet run; returns it as it is now."""
        assert self.hands.api.merge(self._path(jobset), {"spec": {"suspend": False}}).ok
        self._play_jobset(jobset, suspended=False)
        admitted: Manifest = self.hands.api.get(self._path(jobset)).body
        return admitted

    def evict(self, jobset: Manifest, reason: str, message: str, *, pods: list[Manifest]) -> None:
        """Send a JobSet back into its queue.

        In Kueue's own order: it is told before the JobSet is suspended, its pod template as it first was.
        JobSet and the Job controller then have its pods end.
        """
        self.tell(jobset, "Evicted", "True", reason, message)
        replicated = self.hands.api.get(self._path(jobset)).body["spec"]["replicatedJobs"]
        replicated[0]["template"]["spec"]["template"]["metadata"]["labels"]["fray.dev/attempt"] = "1"
        restored = {"suspend": True, "replicatedJobs": replicated}
        assert self.hands.api.merge(self._path(jobset), {"spec": restored}).ok
        self._play_jobset(jobset, suspended=True)
        for pod in pods:
            self.hands.exit(pod, 143)
            self.hands.delete_pod(pod)

    def _play_jobset(self, jobset: Manifest, *, suspended: bool) -> None:
        """Do what JobSet does: its Jobs follow it, with the labels of its pod template once it is resumed."""
        (replicated,) = self.hands.api.get(self._path(jobset)).body["spec"]["replicatedJobs"]
        change: Manifest = {"suspend": suspended}
        if not suspended:
            labels = replicated["template"]["spec"]["template"]["metadata"]["labels"]
            change["template"] = {"metadata": {"labels": labels}}
        for job in self.hands.list(self.hands.batch_jobs):
            if job["metadata"]["ownerReferences"][0]["uid"] == jobset["metadata"]["uid"]:
                path = f"{self.hands.batch_jobs}/{job['metadata']['name']}"
                answer = self.hands.api.merge(path, {"spec": change})
                assert answer.ok, answer.body
        told = {"type": "Suspended", "status": str(suspended), "reason": "SuspendedJobs", "message": ""}
        conditions = [told | {"lastTransitionTime": now()}]
        answer = self.hands.api.merge(f"{self._path(jobset)}/status", {"status": {"conditions": conditions}})
        assert answer.ok, answer.body

    def _path(self, jobset: Manifest) -> str:
        return f"{self.hands.jobsets}/{jobset['metadata']['name']}"


@pytest.fixture(scope="module")
def workload_crd(admin: KeepAliveApi) -> Iterator[None]:
    """The server knows Workloads for as long as the tests of this file run."""
    crd = yaml.safe_load((module_source("kueue") / CRD).read_text(encoding="utf-8"))
    created = admin.post(CRD_COLLECTION, crd)
    assert created.status == 201, created.body
    path = f"{CRD_COLLECTION}/{crd['metadata']['name']}"
    await_served(admin, path)
    yield
    assert admin.delete(path).ok


@pytest.fixture
def impatient_operator(
    workload_crd: None,
    kubeconfig: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[OperatorThread]:
    """An operator that looks ever again at what Kueue says."""
    monkeypatch.setattr(observe, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(observe, "DEACTIVATED_SECONDS", 0.05)
    for constant in ("PATIENCE_SECONDS", "PATIENCE_CAP_SECONDS"):
        monkeypatch.setattr(complaints, constant, 0.05)
    monkeypatch.setattr(shared_answers, "WORKLOADS_SECONDS", 0.05)
    # How long a Workload may take to appear before it is told to be missing.
    monkeypatch.setattr(observe, "WORKLOADS_SECONDS", 600.0)
    with run_operator(kubeconfig, settings_for(hands.namespace)) as running:
        yield running


@pytest.fixture
def kueue(hands: Hands) -> Kueue:
    """Kueue in the test's namespace."""
    return Kueue(hands)


def await_message(hands: Hands, message: str, reason: str = "WaitingForQueue") -> None:
    told = hands.await_job("train", lambda job: condition(job, "Scheduled").get("message") == message)
    assert (told["status"]["phase"], told["status"]["reason"]) == ("Pending", reason)


def test_a_job_tells_why_it_waits_in_its_queue_and_runs_in_the_same_attempt(
    hands: Hands, kueue: Kueue
) -> None:
    hands.submit("train", queue={"name": "team"}, timeouts={"pendingSeconds": 3600})
    jobset = hands.await_jobset("train-a1")
    kueue.hold(jobset)
    await_message(hands, HELD)
    kueue.make_workload(jobset)
    kueue.tell(jobset, "QuotaReserved", "False", "Inadmissible", "LocalQueue team doesn't exist")
    await_message(hands, f"{HELD}: LocalQueue team doesn't exist", "QueueInadmissible")
    kueue.tell(jobset, "QuotaReserved", "False", "Pending", NO_QUOTA)
    await_message(hands, f"{HELD}: {NO_QUOTA}")
    assert hands.await_event("train", "WaitingForQueue")["type"] == "Normal"
    hands.run_all(kueue.admit(jobset))
    job = hands.await_phase("train", "Running")
    assert [attempt["number"] for attempt in job["status"]["attempts"]] == [1]


def run_in_queue(hands: Hands, kueue: Kueue) -> tuple[Manifest, Manifest]:
    """Return the JobSet and the only pod of a job that Kueue has admitted and that runs."""
    hands.submit("train", queue={"name": "team"})
    jobset = hands.await_jobset("train-a1")
    kueue.make_workload(jobset)
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    return jobset, pod


def number_of_pods(jobset: Manifest) -> str:
    (replicated,) = jobset["spec"]["replicatedJobs"]
    number: str = replicated["template"]["spec"]["template"]["metadata"]["labels"]["fray.dev/attempt"]
    return number


def await_number(hands: Hands, number: int) -> Manifest:
    """Return the job's only JobSet once it is held for this attempt, which waits in its queue."""
    job = hands.await_job("train", lambda job: job["status"]["attempt"] == number)
    assert attempt_of(job, number)["jobSet"] == "train-a1"
    path = f"{hands.jobsets}/train-a1"
    eventually(lambda: number_of_pods(hands.api.get(path).body) == str(number))
    (jobset,) = hands.list(hands.jobsets)
    assert jobset["metadata"]["labels"]["fray.dev/attempt"] == str(number)
    assert jobset["spec"]["suspend"]
    hands.await_job("train", lambda job: job["status"]["reason"] == "WaitingForQueue")
    return jobset


def test_an_evicted_jobset_keeps_its_place_and_is_resumed_as_the_next_attempt(
    hands: Hands, kueue: Kueue
) -> None:
    jobset, pod = run_in_queue(hands, kueue)
    uid = jobset["metadata"]["uid"]
    kueue.evict(jobset, "Preempted", "Preempted to accommodate a workload", pods=[pod])
    held = await_number(hands, 2)
    job = hands.job("train")
    attempt = attempt_of(job, 1)
    assert (attempt["verdict"], attempt["reason"]) == ("Suspended", "Suspended")
    assert attempt["message"] == (
        "Kueue evicted it from queue team (Preempted: Preempted to accommodate a workload)"
    )
    (pod,) = hands.run_all(kueue.admit(held))
    assert hands.pods_of(held)[0]["metadata"]["labels"]["fray.dev/attempt"] == "2"
    hands.await_phase("train", "Running")
    # Evicted once more, its template is as it first was: the number has to be told anew.
    kueue.evict(held, "Preempted", "again", pods=[pod])
    (pod,) = hands.run_all(kueue.admit(await_number(hands, 3)))
    hands.await_phase("train", "Running")
    hands.exit(pod, 0)
    hands.complete(jobset)
    job = hands.await_phase("train", "Succeeded")
    (last,) = hands.list(hands.jobsets)
    assert last["metadata"]["uid"] == uid
    verdicts = [attempt["verdict"] for attempt in job["status"]["attempts"]]
    assert verdicts == ["Suspended", "Suspended", "Success"]
    assert job["status"]["retries"] == UNCHARGED


def test_an_eviction_before_a_later_attempt_has_run_leaves_it_its_number(hands: Hands, kueue: Kueue) -> None:
    jobset, pod = run_in_queue(hands, kueue)
    kueue.evict(jobset, "Preempted", "for another", pods=[pod])
    pods = hands.create_pods(kueue.admit(await_number(hands, 2)))
    hands.await_job("train", lambda job: job["status"]["reason"] != "WaitingForQueue")
    kueue.evict(jobset, "PodsReadyTimeout", "not ready", pods=[])
    for pod in pods:
        hands.delete_pod(pod)
    await_number(hands, 2)


def test_a_jobset_that_is_resumed_before_its_hosts_are_gone_is_replaced(hands: Hands, kueue: Kueue) -> None:
    jobset, pod = run_in_queue(hands, kueue)
    kueue.evict(jobset, "Preempted", "for another", pods=[])
    hands.await_phase("train", "Stopping")
    kueue.admit(jobset)
    hands.finish_deletion(await_deletion(hands, "train-a1"), [pod])
    second = hands.await_jobset("train-a2")
    assert second["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert number_of_pods(second) == "2"
    job = hands.await_job("train", lambda job: job["status"]["attempt"] == 2)
    assert attempt_of(job, 1)["verdict"] == "Suspended"
    assert job["status"]["retries"] == UNCHARGED


def test_a_jobset_that_is_resumed_with_an_old_number_is_replaced(
    hands: Hands, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "build_renumbered", lambda *_: None)
    jobset, pod = run_in_queue(hands, kueue)
    kueue.evict(jobset, "Preempted", "for another", pods=[pod])
    hands.await_job("train", lambda job: job["status"]["attempt"] == 2)
    hands.run_all(kueue.admit(jobset))
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    assert number_of_pods(hands.await_jobset("train-a3")) == "3"
    job = hands.await_job("train", lambda job: job["status"]["attempt"] == 3)
    assert [attempt.get("verdict") for attempt in job["status"]["attempts"]] == [
        "Suspended",
        "Suspended",
        None,
    ]
    assert job["status"]["retries"] == UNCHARGED


def test_pods_that_end_by_an_eviction_before_it_is_seen_are_no_failure(hands: Hands, kueue: Kueue) -> None:
    jobset, pod = run_in_queue(hands, kueue)
    hands.exit(pod, 143)
    hands.await_phase("train", "Stopping")
    kueue.evict(jobset, "ClusterQueueStopped", "The ClusterQueue is stopped", pods=[pod])
    await_number(hands, 2)
    job = hands.job("train")
    assert attempt_of(job, 1)["message"] == (
        "Kueue evicted it from queue team (ClusterQueueStopped: The ClusterQueue is stopped)"
    )
    assert job["status"]["retries"] == UNCHARGED


def evict_by_deactivation(hands: Hands, kueue: Kueue) -> Manifest:
    """Return the JobSet of a job whose Workload was deactivated while it ran."""
    jobset, pod = run_in_queue(hands, kueue)
    kueue.set_active(jobset, active=False)
    kueue.evict(jobset, "Deactivated", "The workload is deactivated", pods=[pod])
    job = hands.await_phase("train", "Suspended")
    assert job["status"]["reason"] == "QueueDeactivated"
    assert [attempt["number"] for attempt in job["status"]["attempts"]] == [1]
    assert "deletionTimestamp" not in hands.await_jobset("train-a1")["metadata"]
    return jobset


def test_a_deactivated_workload_gives_no_next_attempt_until_it_is_activated(
    hands: Hands, kueue: Kueue
) -> None:
    jobset = evict_by_deactivation(hands, kueue)
    kueue.set_active(jobset, active=True)
    await_number(hands, 2)
    job = hands.job("train")
    assert attempt_of(job, 1)["verdict"] == "Suspended"
    assert job["status"]["retries"] == UNCHARGED


def test_a_job_whose_workload_is_deactivated_can_be_stopped(hands: Hands, kueue: Kueue) -> None:
    evict_by_deactivation(hands, kueue)
    hands.edit("train", stopped=True)
    hands.finish_deletion(await_deletion(hands, "train-a1"))
    hands.await_phase("train", "Stopped")
