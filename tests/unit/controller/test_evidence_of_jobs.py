"""An eviction that no pod tells of is charged to preemptions, for one request that nobody else pays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError
from fray.kube.request import Request
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS
from fray.plan.gang import derive_gang
from fray.plan.jobset import build_attempt
from fray.plan.observation import HostPhase
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer, trim_pod
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

EVICTED = (
    "Pod default/train-a1-slice-0-0-x7x2p has condition DisruptionTarget matching FailJob rule at index 0"
)
KILLED = (
    "Container main for pod default/train-a1-slice-0-0-x7x2p failed with exit code 143 "
    "matching FailJob rule at index 1"
)


def end_jobset(server: MemoryServer, jobsets: Informer, kind: str) -> Manifest:
    """Return the JobSet of the first attempt of the FrayJob `train`, which has ended."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    jobset = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    ended = {"type": kind, "status": "True", "lastTransitionTime": LONG_AGO}
    stored = server.store(JOBSETS, {**jobset, "status": {"conditions": [ended]}})
    jobsets.remember(stored)
    return stored


def add_job(server: MemoryServer, *, of: Manifest, reason: str, message: str, owned: bool = True) -> None:
    labels = {LABEL_JOBSET_UID: of["metadata"]["uid"], LABEL_JOB_INDEX: "0"}
    ended = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    status = {"conditions": [{**ended, "lastTransitionTime": "2026-01-31T12:00:00Z"}]}
    metadata: dict[str, Any] = {
        "name": f"{of['metadata']['name']}-slice-0",
        "namespace": "default",
        "labels": labels,
    }
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": of["metadata"]["name"]}
    if owned:
        metadata["ownerReferences"] = [{**owner, "uid": of["metadata"]["uid"], "controller": True}]
    server.store(JOBS, {"metadata": metadata, "status": status})


def first_attempt(server: MemoryServer) -> dict[str, Any]:
    job = server.find(FRAYJOBS, "train")
    assert job is not None
    return dict(job["status"]["attempts"][0])


def asked_for_jobs(server: MemoryServer) -> Counter[str]:
    return Counter(call.method for call in server.calls if call.resource is JOBS)


@pytest.mark.parametrize("seen_running", [True, False])
def test_an_eviction_that_only_the_job_tells_of_is_a_preemption(*, seen_running: bool) -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobset = end_jobset(server, jobsets, "Failed")
        add_job(server, of=jobset, reason="PodFailurePolicy", message=EVICTED)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["retries"] == {"failuresUsed": 0, "preemptionsUsed": 1}
        attempt = first_attempt(server)
        assert (attempt["verdict"], attempt["reason"]) == ("Preemption", "Disrupted")
        assert attempt["message"] == f"rank 0 (slice 0, host 0) was taken away ({EVICTED})"
        assert attempt["endTime"] == "2026-01-31T12:00:00.000Z"
        assert asked_for_jobs(server) == {"LIST": 1}
        assert passes(metrics, "error") == 0

    running = {"runningTime": LONG_AGO} if seen_running else {}
    reconcile_for_an_hour([frayjob("train", jobSet="train-a1", **running)], check, prepare=prepare)


def test_a_job_of_somebody_else_with_the_label_tells_nothing() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobset = end_jobset(server, jobsets, "Failed")
        add_job(server, of=jobset, reason="PodFailurePolicy", message=EVICTED, owned=False)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert first_attempt(server)["verdict"] == "Failure"
        assert asked_for_jobs(server) == {"LIST": 1}

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_a_pod_that_was_deleted_while_no_operator_looked_is_a_preemption() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobset = end_jobset(server, jobsets, "Failed")
        add_job(server, of=jobset, reason="PodFailurePolicy", message=KILLED)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        attempt = first_attempt(server)
        assert (attempt["verdict"], attempt["reason"]) == ("Preemption", "HostsGone")
        assert (attempt["pod"], attempt["exitCode"]) == ("train-a1-slice-0-0-x7x2p", 143)
        assert asked_for_jobs(server) == {"LIST": 1}

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_what_the_cache_keeps_of_a_pod_tells_that_it_ended_after_its_deletion() -> None:
    ended, over = "2026-01-31T12:00:02Z", "2026-01-31T12:00:30Z"  # 2 and 30 s after it was asked for
    metadata = {"name": "pod", "namespace": "default", "creationTimestamp": LONG_AGO}
    metadata |= {"deletionTimestamp": over, "labels": {LABEL_COMPLETION_INDEX: "0"}}
    state = {"terminated": {"exitCode": 1, "finishedAt": ended}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}]}
    pod = {"metadata": metadata | {"deletionGracePeriodSeconds": 30}, "status": status}
    gang = derive_gang(FrayJob.from_manifest(frayjob("train")).spec)
    jobset = {"metadata": {"name": "train-a1"}, "spec": {}}
    (host,) = derive_gang_observation(gang, jobset, [trim_pod(pod)]).hosts
    assert host.phase is HostPhase.DELETED


def test_a_failure_whose_pod_is_gone_stays_a_failure() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobset = end_jobset(server, jobsets, "Failed")
        add_job(server, of=jobset, reason="BackoffLimitExceeded", message="Job has reached its limit")

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert first_attempt(server)["verdict"] == "Failure"
        assert asked_for_jobs(server) == {"LIST": 1}

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_a_job_that_succeeded_is_not_asked_about() -> None:
    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert first_attempt(server)["verdict"] == "Success"
        assert asked_for_jobs(server) == {}

    reconcile_for_an_hour(
        [frayjob("train", runningTime=LONG_AGO)],
        check,
        prepare=lambda server, jobsets, _: bool(end_jobset(server, jobsets, "Completed")),
    )


def test_without_the_right_to_read_jobs_an_attempt_is_judged_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    select = MemoryServer.select

    def refuse(server: MemoryServer, request: Request) -> Any:
        if request.resource is JOBS:
            raise ForbiddenError("LIST jobs.batch", 403, "Forbidden", "may not list jobs")
        return select(server, request)

    monkeypatch.setattr(MemoryServer, "select", refuse)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert first_attempt(server)["verdict"] == "Failure"

    reconcile_for_an_hour(
        [frayjob("train", runningTime=LONG_AGO)],
        check,
        prepare=lambda server, jobsets, _: bool(end_jobset(server, jobsets, "Failed")),
    )
    assert "an eviction may be charged as a failure" in caplog.text
