"""The operator makes, sizes and ends the Job of a job's workers, and looks at nothing but its own pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import EVENTS, FRAYJOBS, JOBS, JOBSETS, NETWORK_POLICIES, PODS
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.plan.workers import ResizeWorkers
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_CONTROLLER_UID, Role
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.informer import Informer, JobKey
from fray_operator.lease import Lease
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

NAME = "train-a1-w1"


def wants(replicas: int, **attempt: Any) -> Manifest:
    """Return a job whose head asks for so many workers."""
    return frayjob("train", spec={"workers": {"replicas": replicas, "maxReplicas": 9}}, **attempt)


def store_workers(server: MemoryServer, completions: int, status: Manifest | None = None) -> Manifest:
    """Keep the first Job of workers of the job's first attempt, as it may be."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    plan = build_worker_job(
        FrayJob.from_manifest(body), attempt=1, generation=1, count=completions, settings=PlanSettings()
    )
    return server.store(JOBS, {**plan.manifest, "status": status or {}})


def store_pod(
    server: MemoryServer,
    controller: str,
    *,
    job: str,
    index: int,
    deletion: Manifest | None = None,
    state: Manifest | None = None,
) -> None:
    """Keep a worker's pod, ready or with its container in a state; its label claims to be of `job`."""
    metadata = {
        "name": f"{controller}-{index}",
        "labels": {LABEL_CONTROLLER_UID: job, LABEL_COMPLETION_INDEX: str(index)},
        "ownerReferences": [{"kind": "Job", "name": NAME, "uid": controller, "controller": True}],
        **(deletion or {}),
    }
    status: Manifest = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if state is not None:
        status = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}
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


@pytest.mark.parametrize("others", [0, 1])
def test_a_job_does_not_wait_for_workers_that_no_node_can_end(others: int) -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        made = store_workers(server, 2, {"active": 2})
        server.store(JOBS, {**made, "metadata": {**made["metadata"], "deletionTimestamp": LONG_AGO}})
        uid = made["metadata"]["uid"]
        asked = {"deletionTimestamp": LONG_AGO, "deletionGracePeriodSeconds": 30}
        store_pod(server, uid, job=uid, index=1, deletion=asked)
        for index in range(others):
            store_pod(server, uid, job=uid, index=index)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["phase"] == ("Stopping" if others else "Stopped")
        assert passes(metrics, "error") == 0

    body = wants(2, runningTime=LONG_AGO)
    body["spec"]["stopped"] = True
    reconcile_for_an_hour([body], check, prepare=prepare)


CRASHED = {"terminated": {"exitCode": 3, "message": "no module named score", "finishedAt": LONG_AGO}}


@pytest.mark.parametrize(
    ("failed", "words"), [(8, ("crashed 8 times", "exit code 3", "no module named score")), (7, ())]
)
def test_workers_that_all_crash_fail_the_attempt_with_the_last_ones_story(
    failed: int, words: tuple[str, ...]
) -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        job = store_workers(server, 3, {"active": 3, "failed": failed})["metadata"]["uid"]
        store_pod(server, job, job=job, index=0, state=CRASHED)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        attempt = job["status"]["attempts"][-1]
        assert attempt.get("reason") == ("WorkersFailed" if words else None)
        story = "\n".join([attempt.get("message", ""), *attempt.get("logTail", [])])
        assert all(word in story for word in words)
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(3)], check, prepare=prepare)


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


def test_the_pools_ports_are_guarded_before_there_are_pods_and_once_for_all_attempts() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        made = [call.resource for call in server.writes if call.method == "POST"]
        first = [one for one in made if one in (NETWORK_POLICIES, JOBSETS, JOBS)]
        assert first == [NETWORK_POLICIES, JOBSETS, JOBS]
        (policy,) = server.all(NETWORK_POLICIES)
        assert policy["metadata"]["name"] == "train-pool"
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([wants(3)], check)


@pytest.mark.parametrize("replicas", [0, 2])
def test_workers_that_are_as_they_are_to_be_are_read_by_no_pass(replicas: int) -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        store_workers(server, 2, {"active": 2, "ready": 2})

    def check(server: MemoryServer, *_: Any) -> None:
        read = [call for call in server.calls if call.method == "GET" and call.resource in (JOBS, PODS)]
        assert [call.resource for call in read] == ([JOBS] if replicas else [])

    reconcile_for_an_hour([wants(replicas)], check, prepare=prepare if replicas else _nothing)


def _nothing(*_: Any) -> None:
    """Prepare nothing."""


def test_a_job_of_workers_that_has_gone_on_since_is_resized_by_what_it_is_now() -> None:
    """What is known here may be older: an index that is complete by now counts."""

    async def main() -> None:
        server = MemoryServer()
        server.store(FRAYJOBS, wants(3))
        api, remembered = MemoryApi(server), list[tuple[Role, Manifest]]()
        lease = Lease(api, namespace="default", name="leader", identity="a", seconds=3600)
        await lease.acquire()
        actor = Actor(api, lease, settings=PlanSettings(), remember=lambda *told: remembered.append(told))
        old = store_workers(server, 3, {"active": 3})
        now = store_workers(server, 3, {"active": 2, "succeeded": 1, "completedIndexes": "1"})
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        job, step = FrayJob.from_manifest(body), ResizeWorkers(NAME, 5)
        assert await actor.carry_out(job, step, [old]) is None
        assert [role for role, _ in remembered] == [Role.WORKER]
        assert sizes(server) == {NAME: (3, 3)}
        assert await actor.carry_out(job, step, [now]) is None
        assert sizes(server) == {NAME: (5, 5)}

    asyncio.run(main())
