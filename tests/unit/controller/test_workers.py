"""The operator makes, sizes and ends the Job of a job's workers, and looks at nothing but its own pods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import EVENTS, FRAYJOBS, JOBS, JOBSETS, PODS
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_CONTROLLER_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer, JobKey
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour
from tests.unit.controller.memory_server import MemoryServer

NAME = "train-a1-w1"


@pytest.fixture(autouse=True)
def _supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fray.plan.workers.WORKERS_SUPPORTED", True)


def wants(replicas: int, **attempt: Any) -> Manifest:
    return frayjob("train", spec={"workers": {"replicas": replicas}}, **attempt)


def store_workers(server: MemoryServer, completions: int, status: Manifest | None = None) -> Manifest:
    """Keep the first Job of workers of the job's first attempt, as it may be."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    manifest = build_worker_job(
        FrayJob.from_manifest(body), attempt=1, generation=1, count=completions, settings=PlanSettings()
    )
    return server.store(JOBS, {**manifest, "status": status or {}})


def store_pod(server: MemoryServer, controller: str, *, job: str, index: int) -> None:
    """Keep a worker's pod that is ready; `job` is the uid that its label claims."""
    metadata = {
        "name": f"{controller}-{index}",
        "labels": {LABEL_CONTROLLER_UID: job, LABEL_COMPLETION_INDEX: str(index)},
        "ownerReferences": [{"kind": "Job", "name": NAME, "uid": controller, "controller": True}],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.store(PODS, {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status})


def sizes(server: MemoryServer) -> dict[str, tuple[int, int]]:
    return {
        one["metadata"]["name"]: (one["spec"]["completions"], one["spec"]["parallelism"])
        for one in server.all(JOBS)
    }


def writes(server: MemoryServer) -> list[str]:
    return [call.method for call in server.writes if call.resource is JOBS]


def test_an_attempt_begins_with_its_jobset_and_its_workers() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        assert sizes(server) == {NAME: (3, 3)}
        (jobset,), (workers,) = server.all(JOBSETS), server.all(JOBS)
        assert workers["metadata"]["ownerReferences"] == jobset["metadata"]["ownerReferences"]
        assert writes(server) == ["POST"]
        assert passes(metrics, "error") == 0
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        told = {c["type"]: (c["status"], c["reason"]) for c in job["status"]["conditions"]}
        assert told["WorkersReady"] == ("False", "WorkersStarting")
        assert job["status"]["workers"]["desired"] == 3

    reconcile_for_an_hour([wants(3)], check)


def test_a_worker_that_handed_over_is_followed_by_another_index() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        store_workers(server, 3, {"succeeded": 1, "completedIndexes": "1", "active": 2, "ready": 2})

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        assert sizes(server) == {NAME: (4, 4)}
        assert writes(server) == ["POST", "PUT"], "the first finds that it is there"
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(3)], check, prepare=prepare)


@pytest.mark.parametrize(("foreign", "left"), [(False, 3), (True, 1)])
def test_no_ready_worker_is_cut_off_and_pods_of_others_count_for_nothing(*, foreign: bool, left: int) -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        job = store_workers(server, 3, {"active": 3, "ready": 1})["metadata"]["uid"]
        store_pod(server, "somebody-else" if foreign else job, job=job, index=2)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        assert sizes(server) == {NAME: (left, left)}
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(1)], check, prepare=prepare)


def test_a_job_that_is_stopped_isnt_finished_before_its_workers_are_gone() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        store_workers(server, 3, {"active": 3})

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        # Nothing ends pods here, so the Job is being deleted for ever.
        (workers,) = server.all(JOBS)
        assert workers["metadata"]["finalizers"] == ["foregroundDeletion"]
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["phase"] == "Stopping"
        assert passes(metrics, "error") == 0

    body = wants(3, runningTime=LONG_AGO)
    body["spec"]["stopped"] = True
    reconcile_for_an_hour([body], check, prepare=prepare)


def test_a_job_of_workers_of_somebody_elses_is_left_alone() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        server.store(JOBS, {"metadata": {"name": NAME}, "spec": {"completions": 9, "parallelism": 9}})

    def check(server: MemoryServer, *_: Any) -> None:
        assert sizes(server) == {NAME: (9, 9)}
        assert set(writes(server)) == {"POST"}
        assert len(writes(server)) < 100, "it is tried again ever more rarely"
        told = [event["reason"] for event in server.all(EVENTS)]
        assert "AttemptStarted" in told
        assert "NameTaken" not in told, "the gang doesn't wait for them"

    reconcile_for_an_hour([wants(3)], check, prepare=prepare)


def test_workers_that_others_label_as_the_jobs_count_for_nothing() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        ours = store_workers(server, 3, {"active": 3, "ready": 3})["metadata"]
        owner = {"kind": "CronJob", "name": "x", "uid": "u-x", "controller": True}
        foreign = {"name": "train-a1-w7", "labels": ours["labels"], "ownerReferences": [owner]}
        server.store(JOBS, {"metadata": foreign, "spec": {"completions": 9, "parallelism": 9}})

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        assert sizes(server) == {NAME: (4, 4), "train-a1-w7": (9, 9)}
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(4)], check, prepare=prepare)


def test_workers_of_an_attempt_that_has_ended_are_removed() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        made = store_workers(server, 3)
        labels = {**made["metadata"]["labels"], "fray.dev/attempt": "7"}
        server.store(
            JOBS, {**made, "metadata": {**made["metadata"], "name": "train-a7-w1", "labels": labels}}
        )

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        going = {one["metadata"]["name"]: "deletionTimestamp" in one["metadata"] for one in server.all(JOBS)}
        assert going == {NAME: False, "train-a7-w1": True}
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(3)], check, prepare=prepare)


def test_without_the_switch_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fray.plan.workers.WORKERS_SUPPORTED", False)

    def check(server: MemoryServer, *_: Any) -> None:
        assert server.all(JOBS) == server.all(JOBSETS) == []
        assert not [call for call in server.calls if re.search("jobs.batch", str(call.resource))]

    reconcile_for_an_hour([wants(3)], check)
