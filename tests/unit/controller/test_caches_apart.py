"""The caches of JobSets and pods are not of one moment: no verdict rests on what only one of them knows."""

from __future__ import annotations

from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS, PODS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

ENDED = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": LONG_AGO}]}
PENDING = {"phase": "Pending"}


def running() -> Manifest:
    state = {"running": {"startedAt": LONG_AGO}}
    return {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}


def failed(code: int, **more: Any) -> Manifest:
    state = {"terminated": {"exitCode": code, "startedAt": LONG_AGO, "finishedAt": LONG_AGO}}
    return {"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}], **more}


def disrupted() -> Manifest:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    return failed(143, conditions=[{**mark, "message": "evicted", "lastTransitionTime": LONG_AGO}])


def make_jobset(server: MemoryServer, **more: Any) -> Manifest:
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    return server.store(JOBSETS, {**made, **more})


def make_pod(server: MemoryServer, jobset: Manifest, status: Manifest, **metadata: Any) -> Manifest:
    labels = {**jobset["metadata"]["labels"], LABEL_JOBSET_UID: jobset["metadata"]["uid"]}
    labels |= {LABEL_JOB_INDEX: "0", LABEL_COMPLETION_INDEX: "0"}
    told = {"name": "train-a1-slice-0-0-x7x2p", "namespace": "default", "labels": labels, **metadata}
    body = {"metadata": told | {"creationTimestamp": LONG_AGO}, "spec": {"nodeName": "n"}, "status": status}
    return server.store(PODS, body)


def attempts(server: MemoryServer) -> list[dict[str, Any]]:
    job = server.find(FRAYJOBS, "train")
    assert job is not None
    return list(job["status"]["attempts"])


@pytest.mark.parametrize("seen", [PENDING, None], ids=["not started", "not there"])
@pytest.mark.parametrize(
    ("really", "verdict", "reason", "code"),
    [
        (failed(3), "Failure", "NonZeroExit", 3),
        (disrupted(), "Preemption", "Disrupted", 143),
    ],
    ids=["crashed", "evicted"],
)
def test_a_pod_that_the_cache_is_behind_of_tells_itself_how_it_ended(
    seen: Manifest | None, really: Manifest, verdict: str, reason: str, code: int
) -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        jobset = make_jobset(server, status=ENDED)
        jobsets.remember(jobset)
        if seen is not None:
            pods.remember(make_pod(server, jobset, seen))
        make_pod(server, jobset, really)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        first = attempts(server)[0]
        assert (first["verdict"], first["reason"], first["exitCode"]) == (verdict, reason, code)
        assert [call.method for call in server.calls if call.resource is PODS] == ["LIST"]
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([frayjob("train")], check, prepare=prepare)


def test_an_attempt_has_not_ended_while_a_pod_runs_that_the_cache_has_never_seen() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobset = make_jobset(server, status=ENDED)
        jobsets.remember(jobset)
        make_pod(server, jobset, running())

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        (first,) = attempts(server)
        assert "verdict" not in first

    job = frayjob("train", spec={"retries": {"failures": 5}}, runningTime=LONG_AGO)
    reconcile_for_an_hour([job], check, prepare=prepare)


@pytest.mark.parametrize(
    ("suspended", "verdict"),
    [(True, "Suspended"), (False, "Preemption")],
    ids=["suspended", "deleted by hand"],
)
def test_pods_that_are_deleted_as_their_jobset_is_suspended_are_not_taken_away(
    *, suspended: bool, verdict: str
) -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        jobset = make_jobset(server)
        jobsets.remember(jobset)
        server.store(JOBSETS, {**jobset, "spec": {**jobset["spec"], "suspend": suspended}})
        deleted = {"deletionTimestamp": LONG_AGO, "deletionGracePeriodSeconds": 0}
        pods.remember(make_pod(server, jobset, failed(143), **deleted))

    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        first = attempts(server)[0]
        expected = {"Suspended": "Suspended", "Preemption": "HostsGone"}[verdict]
        assert first["reason"] == expected

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_an_attempt_that_has_ended_does_not_run_again_since_nobody_here_knows() -> None:
    """An earlier leader wrote its end; the watch of FrayJobs has yet to tell of it."""

    def prepare(server: MemoryServer, _jobsets: Informer, _pods: Informer) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        ended = {"runningTime": LONG_AGO, "endTime": LONG_AGO, "verdict": "Preemption", "reason": "HostsGone"}
        (attempt,) = job["status"]["attempts"]
        server.store(FRAYJOBS, {**job, "status": {**job["status"], "attempts": [attempt | ended]}})

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        made = [call.name for call in server.calls if call.resource is JOBSETS and call.method == "POST"]
        assert made == ["train-a2"]
        assert passes(metrics, "conflict") >= 1
        assert passes(metrics, "error") == 0

    # The status that is known here tells all that a first pass would write, so that pass writes nothing.
    job = told_to_start()
    reconcile_for_an_hour([job], check, prepare=prepare)


def told_to_start() -> Manifest:
    """Return a FrayJob whose first attempt was announced, as the operator itself writes that."""
    known: list[Manifest] = []

    def keep(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        known.extend(server.all(FRAYJOBS))

    def refuse(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        jobsets.remember(
            server.store(JOBSETS, {"metadata": {"name": "train-a1", "labels": {"fray.dev/job": "x"}}})
        )

    reconcile_for_an_hour([frayjob("train", jobSet="train-a1")], keep, prepare=refuse)
    return known[0]
