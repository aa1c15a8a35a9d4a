"""A FrayJob that is deleted takes everything along: held by a finalizer, and what lost its owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import (
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
    LABEL_MANAGED_BY,
    LABEL_ROLE,
)
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour


def calls(server: MemoryServer) -> Counter[tuple[str, str]]:
    return Counter(
        (call.method, call.resource.plural) for call in server.calls if call.resource in (JOBSETS, FRAYJOBS)
    )


# --- held by somebody else's finalizer ------------------------------------------------------------------


def held(**attempt: Any) -> Manifest:
    """Return a FrayJob that is being deleted, and stays."""
    job = frayjob("train", spec={"retries": {"failures": 5}}, **attempt)
    job["metadata"] |= {"deletionTimestamp": LONG_AGO, "finalizers": ["example.com/audit"]}
    return job


def run_attempt(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
    """Have the first attempt run, and end some time after its JobSet is deleted."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    stored = server.store(JOBSETS, made)
    jobsets.remember(stored)
    labels = dict(made["metadata"]["labels"])
    labels |= {LABEL_JOBSET_UID: stored["metadata"]["uid"], LABEL_COMPLETION_INDEX: "0"}
    metadata = {"name": "pod", "namespace": "default", "uid": "p", "creationTimestamp": LONG_AGO}
    running = [{"name": "main", "state": {"running": {"startedAt": LONG_AGO}}}]
    pod = {"metadata": {**metadata, "labels": labels}, "spec": {"nodeName": "n"}}
    pods.remember({**pod, "status": {"phase": "Running", "containerStatuses": running}})

    def end() -> None:
        jobset = server.find(JOBSETS, "train-a1")
        assert jobset is not None
        assert "deletionTimestamp" in jobset["metadata"]
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["phase"] == "Stopping"
        told = {c["type"]: c["message"] for c in job["status"]["conditions"]}
        assert told["Running"] == "attempt 1 is ending: the FrayJob is being deleted"
        jobsets.remember(jobset)
        killed = {"exitCode": 143, "startedAt": LONG_AGO, "finishedAt": LONG_AGO}
        ended = [{"name": "main", "state": {"terminated": killed}}]
        pods.remember({**pod, "status": {"phase": "Failed", "containerStatuses": ended}})

    asyncio.get_running_loop().call_later(600, end)


def check_stopped(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
    job = server.find(FRAYJOBS, "train")
    assert job is not None
    told = {c["type"]: (c["status"], c["message"]) for c in job["status"]["conditions"]}
    assert told["Stopped"] == told["Finished"] == ("True", "the FrayJob is being deleted")
    assert calls(server)["POST", "jobsets"] == 0
    assert passes(metrics, "error") == 0


def test_an_attempt_is_ended_although_its_job_stays_while_it_is_deleted() -> None:
    reconcile_for_an_hour([held(runningTime=LONG_AGO)], check_stopped, prepare=run_attempt)


@pytest.mark.parametrize(
    "attempt",
    [{}, {"jobSet": "train-a1"}, {"verdict": "Failure", "reason": "NonZeroExit", "endTime": LONG_AGO}],
    ids=["none yet", "not created yet", "between two"],
)
def test_no_attempt_begins_while_its_job_is_deleted(attempt: dict[str, Any]) -> None:
    reconcile_for_an_hour([held(**attempt)], check_stopped)


def test_no_attempt_begins_when_its_job_is_deleted_just_after_it_was_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace = MemoryServer.replace

    def delete_after(server: MemoryServer, *args: Any) -> Manifest:
        written = replace(server, *args)
        if "deletionTimestamp" in written["metadata"]:
            return written
        deleted = {"deletionTimestamp": LONG_AGO, "finalizers": ["example.com/audit"]}
        return server.store(FRAYJOBS, {**written, "metadata": written["metadata"] | deleted})

    monkeypatch.setattr(MemoryServer, "replace", delete_after)
    reconcile_for_an_hour([frayjob("train")], check_stopped)


# --- JobSets that nobody owns ---------------------------------------------------------------------------


def ownerless(name: str, *, uid: str | None, **more: Any) -> Manifest:
    """Return a JobSet whose owner reference somebody took away, made for the FrayJob of this uid."""
    labels = {LABEL_JOB: name, LABEL_MANAGED_BY: "fray"}
    if uid is not None:
        labels[LABEL_JOB_UID] = uid
    metadata = {"name": f"{name}-a1", "namespace": "default", "labels": labels | more.pop("labels", {})}
    return {"metadata": metadata | more, "spec": {"suspend": False}}


def test_workers_that_nobody_owns_go_with_their_job() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        (workers,) = server.all(JOBS)
        assert "deletionTimestamp" in workers["metadata"]
        assert passes(metrics, "error") == 0

    def prepare(server: MemoryServer, *_: Informer) -> None:
        body = ownerless("train", uid="u-gone", labels={LABEL_ROLE: "worker"})
        body["metadata"]["name"] += "-w1"
        server.store(JOBS, body)

    reconcile_for_an_hour([], check, prepare=prepare)


def remove_job(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
    """Have a deleted FrayJob's JobSet left, and somebody look."""
    jobsets.remember(server.store(JOBSETS, ownerless("train", uid="u-gone")))


@pytest.mark.parametrize("successor", [False, True])
def test_a_jobset_that_nobody_owns_goes_with_its_job(*, successor: bool) -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        jobset = server.find(JOBSETS, "train-a1")
        assert jobset is not None
        assert "deletionTimestamp" in jobset["metadata"]
        assert calls(server)["DELETE", "jobsets"] == 1 or successor
        assert passes(metrics, "error") == 0

    # A successor of the same name neither saves it, nor is confused with it.
    jobs = [frayjob("train", spec={"suspend": True})] if successor else []
    reconcile_for_an_hour(jobs, check, prepare=remove_job)


@pytest.mark.parametrize(
    "jobset",
    [
        ownerless("train", uid="u-gone", ownerReferences=[{"kind": "FrayJob", "uid": "u-gone"}]),
        ownerless("train", uid="u-gone", labels={LABEL_MANAGED_BY: "other"}),
        ownerless("train", uid=None),
        ownerless("train", uid="u-gone", deletionTimestamp=LONG_AGO),
    ],
    ids=["has an owner", "another manager", "not made for a job", "being deleted"],
)
def test_nothing_else_is_deleted_or_asked_about(jobset: Manifest) -> None:
    """A normal deletion, whose JobSets have their owner, costs no call."""

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server) == {}

    reconcile_for_an_hour(
        [], check, prepare=lambda server, jobsets, _: jobsets.remember(server.store(JOBSETS, jobset))
    )


def test_the_jobset_of_a_finished_job_stays_without_owner() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        jobsets.remember(server.store(JOBSETS, ownerless("train", uid=body["metadata"]["uid"])))

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server) == {("GET", "frayjobs"): 1}

    finished = frayjob("train")
    finished["status"] = {"conditions": [{"type": "Finished", "status": "True"}]}
    reconcile_for_an_hour([finished], check, prepare=prepare)


def test_the_jobset_of_a_living_job_stays_although_it_carries_the_name_of_another() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        jobsets.remember(server.store(JOBSETS, ownerless("other", uid=body["metadata"]["uid"])))

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server)["DELETE", "jobsets"] == 0

    reconcile_for_an_hour([frayjob("train", spec={"suspend": True})], check, prepare=prepare)
