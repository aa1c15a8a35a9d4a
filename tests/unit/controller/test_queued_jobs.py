"""Kueue's words about suspended JobSets: read where there are such, for all jobs at once, never needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, ServerError
from fray.kube.request import Request
from fray.kube.resources import FRAYJOBS, JOBSETS, WORKLOADS
from fray.plan.jobset import build_attempt
from fray.plan.kueue import is_misnumbered
from fray.plan.settings import PlanSettings
from fray.testing import memory
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

NEW, OLD = WORKLOADS
QUEUED = {"queue": {"name": "team"}}
NO_QUOTA = "insufficient unused quota for pods in flavor default, 1 more needed"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the server know Workloads in these versions, too."""

    def make(*versions: Any) -> None:
        monkeypatch.setattr(memory, "SERVED", memory.SERVED | set(versions))

    return make


def hold(server: MemoryServer, jobsets: Informer, *names: str) -> list[Manifest]:
    """Add the JobSets of the first attempts of these FrayJobs, as Kueue holds them."""
    held = []
    for name in names:
        body = server.find(FRAYJOBS, name)
        assert body is not None
        jobset = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
        jobset["spec"]["suspend"] = True
        held.append(server.store(JOBSETS, jobset))
        jobsets.remember(held[-1])
    return held


def add_workload(server: MemoryServer, jobset: Manifest, *conditions: Manifest, version: Any = NEW) -> None:
    uid = jobset["metadata"]["uid"]
    metadata = {
        "name": f"jobset-{jobset['metadata']['name']}-12345",
        "namespace": "default",
        "labels": {"kueue.x-k8s.io/job-uid": uid},
        "ownerReferences": [{"kind": "JobSet", "name": jobset["metadata"]["name"], "uid": uid}],
    }
    body = {"metadata": metadata, "spec": {"queueName": "team"}, "status": {"conditions": list(conditions)}}
    server.store(version, body)


def pending(message: str = NO_QUOTA) -> Manifest:
    return {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}


def add_pod(pods: Informer, jobset: Manifest) -> None:
    """Add the only pod of a JobSet, which runs."""
    labels = {**jobset["metadata"]["labels"], LABEL_COMPLETION_INDEX: "0"}
    labels[LABEL_JOBSET_UID] = jobset["metadata"]["uid"]
    metadata = {"name": "pod", "namespace": "default", "uid": "uid-pod", "labels": labels}
    state = {"running": {"startedAt": LONG_AGO}}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}
    pods.remember(
        {"metadata": metadata | {"creationTimestamp": LONG_AGO}, "spec": {"nodeName": "n"}, "status": status}
    )


def scheduled(server: MemoryServer, name: str = "train") -> tuple[str, str, str]:
    job = server.find(FRAYJOBS, name)
    assert job is not None
    (found,) = (c for c in job["status"]["conditions"] if c["type"] == "Scheduled")
    return found["status"], found["reason"], found["message"]


def lists_of_workloads(server: MemoryServer) -> int:
    return sum(call.method == "LIST" and call.resource in WORKLOADS for call in server.calls)


@pytest.mark.parametrize("version", WORKLOADS, ids=lambda resource: str(resource.version))
def test_why_a_job_waits_is_told_whichever_version_kueue_has(
    serve: Callable[..., None], version: Any
) -> None:
    serve(version)

    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        (jobset,) = hold(server, jobsets, "train")
        add_workload(server, jobset, pending(), version=version)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        told = f"Kueue has not admitted it to queue team: {NO_QUOTA}"
        assert scheduled(server) == ("False", "WaitingForQueue", told)
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([frayjob("train", spec=QUEUED, jobSet="train-a1")], check, prepare=prepare)


def test_a_hundred_jobs_in_a_queue_share_what_is_asked_in_an_hour(serve: Callable[..., None]) -> None:
    serve(NEW)
    names = [f"train-{number}" for number in range(100)]

    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        for jobset in hold(server, jobsets, *names):
            add_workload(server, jobset, pending())

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert {scheduled(server, name)[1] for name in names} == {"WaitingForQueue"}
        # All look within the same moment here; spread out, it would be one list in ten seconds at most.
        assert 0 < lists_of_workloads(server) <= 360
        assert passes(metrics, "error") == 0

    jobs = [frayjob(name, spec=QUEUED, jobSet=f"{name}-a1") for name in names]
    reconcile_for_an_hour(jobs, check, prepare=prepare)


def test_words_that_change_are_told_although_no_event_brings_a_pass(serve: Callable[..., None]) -> None:
    serve(NEW)

    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        (jobset,) = hold(server, jobsets, "train")
        asyncio.get_running_loop().call_later(600, add_workload, server, jobset, pending())

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert scheduled(server)[2].endswith(NO_QUOTA)

    reconcile_for_an_hour([frayjob("train", spec=QUEUED, jobSet="train-a1")], check, prepare=prepare)


def test_a_workload_that_never_comes_is_told(serve: Callable[..., None]) -> None:
    serve(NEW)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert scheduled(server)[2].endswith("; is there a WorkloadPriorityClass urgent?")

    spec = {"queue": {"name": "team", "priorityClass": "urgent"}}
    reconcile_for_an_hour(
        [frayjob("train", spec=spec, jobSet="train-a1")],
        check,
        prepare=lambda server, jobsets, _: hold(server, jobsets, "train") and None,
    )


@pytest.mark.parametrize("error", [None, ForbiddenError, ServerError])
def test_a_job_waits_in_its_queue_without_anybodys_words(
    error: Any,
    serve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if error is not None:
        serve(*WORKLOADS)
        select = MemoryServer.select

        def refuse(server: MemoryServer, request: Request) -> Any:
            if request.resource in WORKLOADS:
                raise error("LIST workloads", 403 if error is ForbiddenError else 500, "", "no")
            return select(server, request)

        monkeypatch.setattr(MemoryServer, "select", refuse)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        told = "Kueue has not admitted it to queue team"
        assert scheduled(server) == ("False", "WaitingForQueue", told)
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour(
        [frayjob("train", spec=QUEUED, jobSet="train-a1")],
        check,
        prepare=lambda server, jobsets, _: hold(server, jobsets, "train") and None,
    )
    # Without Kueue, or the right to read it, nobody need look at anything.
    assert any(record.levelname == "WARNING" for record in caplog.records) == (error is ServerError)


def evicted() -> Manifest:
    return {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "for another"}


def test_an_evicted_jobset_whose_hosts_do_not_end_is_kept_and_asked_about_once_a_minute(
    serve: Callable[..., None],
) -> None:
    serve(NEW)

    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        (jobset,) = hold(server, jobsets, "train")
        add_workload(server, jobset, evicted())
        add_pod(pods, jobset)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        (attempt,) = job["status"]["attempts"]
        assert attempt["reason"] == "Suspended"
        assert attempt["message"] == "Kueue evicted it from queue team (Preempted: for another)"
        assert server.find(JOBSETS, "train-a1") is not None
        assert lists_of_workloads(server) <= 61

    reconcile_for_an_hour(
        [frayjob("train", spec=QUEUED, jobSet="train-a1", runningTime=LONG_AGO)], check, prepare=prepare
    )


def test_an_evicted_jobset_without_hosts_waits_as_that_of_the_next_attempt(
    serve: Callable[..., None],
) -> None:
    serve(NEW)

    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        (jobset,) = hold(server, jobsets, "train")
        add_workload(server, jobset, evicted(), pending())

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job, jobset = server.find(FRAYJOBS, "train"), server.find(JOBSETS, "train-a1")
        assert job is not None
        assert jobset is not None
        told = [(each["number"], each["jobSet"], each.get("verdict")) for each in job["status"]["attempts"]]
        assert told == [(1, "train-a1", "Suspended"), (2, "train-a1", None)]
        assert not is_misnumbered(jobset, 2)
        assert jobset["metadata"]["labels"]["fray.dev/attempt"] == "2"
        assert scheduled(server) == (
            "False",
            "WaitingForQueue",
            f"Kueue has not admitted it to queue team: {NO_QUOTA}",
        )
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour(
        [frayjob("train", spec=QUEUED, jobSet="train-a1", runningTime=LONG_AGO)], check, prepare=prepare
    )


def test_nobody_asks_about_a_job_that_runs(serve: Callable[..., None]) -> None:
    serve(*WORKLOADS)

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert lists_of_workloads(server) == 0

    reconcile_for_an_hour([frayjob("train", spec=QUEUED)], check)
