"""A JobSet whose creation came too late is deleted, and no other is: not the one that is being started."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, Resource
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.testing.memory import Call, MemoryServer
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB, LABEL_JOB_UID, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.ownership import find_obsolete, may_be_obsolete
from tests.unit.controller.an_hour import LONG_AGO, frayjob, reconcile_for_an_hour
from tests.unit.controller.watched_life import WatchedLife, live

ENDED = {"verdict": "Stopped", "reason": "StopRequested", "endTime": LONG_AGO}
FINISHED: dict[str, Any] = {
    "conditions": [
        {"type": "Finished", "status": "True", "reason": "StopRequested", "lastTransitionTime": LONG_AGO}
    ]
}


def job_of(*verdicts: str | None, **status: Any) -> FrayJob:
    attempts: list[Manifest] = [
        {"number": number, "jobSet": f"train-a{number}", **({"verdict": verdict} if verdict else {})}
        for number, verdict in enumerate(verdicts, start=1)
    ]
    body = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u"},
        "spec": {"entrypoint": {"command": ["train"]}},
        "status": {"attempts": attempts, **status},
    }
    return FrayJob.from_manifest(body)


def jobset_of(number: int, *, status: Manifest | None = None, **metadata: Any) -> Manifest:
    body: Manifest = build_attempt(job_of(), attempt=number, settings=PlanSettings()).jobset
    body["metadata"] |= {"uid": f"j{number}", **metadata}
    return {**body, "status": status or {}}


ENDS = {"conditions": [{"type": "Failed", "status": "True"}]}
OTHERS = [{"kind": "FrayJob", "name": "train", "uid": "v", "controller": True}]


@pytest.mark.parametrize(
    ("job", "obsolete"),
    [
        (job_of(), []),
        (job_of(None), []),
        (job_of("Failure"), ["train-a1"]),
        (job_of("Failure", None), ["train-a1"]),
        (job_of("Failure", "Preemption"), ["train-a1", "train-a2"]),
        (job_of("Failure", "Preemption", None), ["train-a1", "train-a2"]),
        (job_of(None, **FINISHED), ["train-a1", "train-a2", "train-a3"]),
        (job_of(**FINISHED), ["train-a1", "train-a2", "train-a3"]),
    ],
)
def test_what_goes_on_after_its_end_is_obsolete(job: FrayJob, obsolete: list[str]) -> None:
    found = find_obsolete(job, [jobset_of(number) for number in (1, 2, 3)])
    assert [jobset["metadata"]["name"] for jobset in found] == obsolete


@pytest.mark.parametrize(
    "jobset",
    [
        jobset_of(1, status=ENDS),
        jobset_of(1, deletionTimestamp=LONG_AGO),
        jobset_of(1, ownerReferences=OTHERS),
        jobset_of(1, labels={LABEL_JOB: "train", LABEL_ATTEMPT: "1"}),
        jobset_of(1, labels={LABEL_JOB: "train", LABEL_JOB_UID: "u"}),
        jobset_of(2, labels={LABEL_JOB: "train", LABEL_JOB_UID: "u", LABEL_ATTEMPT: "1"}),
    ],
    ids=["ended", "going", "another's", "not made for it", "no number", "the current one by its name"],
)
def test_no_other_is(jobset: Manifest) -> None:
    assert find_obsolete(job_of("Failure", None), [jobset]) == []


def test_only_what_fray_made_and_goes_on_may_be_obsolete() -> None:
    assert may_be_obsolete(jobset_of(1))
    assert not may_be_obsolete(jobset_of(1, status=ENDS))
    assert not may_be_obsolete(jobset_of(1, deletionTimestamp=LONG_AGO))
    assert not may_be_obsolete(jobset_of(1, labels={LABEL_JOB: "train", LABEL_ATTEMPT: "1"}))


# --- what is done ---------------------------------------------------------------------------------------


def come_late(life: WatchedLife, attempt: int) -> None:
    """Have the request to create an attempt's JobSet be carried out now."""
    job = FrayJob.from_manifest(life.require("train"))
    made = build_attempt(job, attempt=attempt, settings=PlanSettings()).jobset
    life.server.create(JOBSETS, made, "default")


def come_late_as_workers(life: WatchedLife, attempt: int) -> None:
    """Have the request to create an attempt's Job of workers be carried out now."""
    job = FrayJob.from_manifest(life.require("train"))
    made = build_worker_job(job, attempt=attempt, generation=1, count=2, settings=PlanSettings())
    life.server.create(JOBS, made.manifest, "default")


def is_going(life: WatchedLife, name: str, *, resource: Resource = JOBSETS) -> bool | None:
    """Return whether a child is there and not being deleted; None when there is none."""
    child = life.server.find(resource, name)
    return None if child is None else "deletionTimestamp" not in child["metadata"]


def test_it_is_deleted_when_its_job_has_finished() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        await life.start()
        await asyncio.sleep(60)
        life.edit("train", stopped=True)
        await asyncio.sleep(60)
        assert life.require("train")["status"]["phase"] == "Stopped"
        come_late(life, 1)
        await asyncio.sleep(60)
        assert is_going(life, "train-a1") is False

    live(story)


def test_workers_that_come_when_their_job_has_finished_are_deleted_too() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True, workers={"replicas": 2, "maxReplicas": 9})
        await life.start()
        await asyncio.sleep(60)
        life.edit("train", stopped=True)
        await asyncio.sleep(60)
        come_late_as_workers(life, 1)
        await asyncio.sleep(60)
        assert is_going(life, "train-a1-w1", resource=JOBS) is False

    live(story)


def test_it_is_deleted_by_the_next_operator_too() -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", suspend=True)
        life.finish("train", "Stopped")
        come_late(life, 1)
        await life.start()
        await asyncio.sleep(60)
        assert is_going(life, "train-a1") is False

    live(story)


async def suspend_after_an_attempt(life: WatchedLife) -> None:
    """Start a job, and suspend it; nothing is left of its attempt."""
    life.submit("train")
    await life.start()
    await asyncio.sleep(60)
    life.edit("train", suspend=True)
    await asyncio.sleep(60)
    life.server.remove(JOBSETS, "train-a1")
    await asyncio.sleep(60)


def test_it_is_deleted_while_the_next_attempt_runs_which_goes_on() -> None:
    async def story(life: WatchedLife) -> None:
        await suspend_after_an_attempt(life)
        life.edit("train", suspend=False)
        await asyncio.sleep(60)
        assert is_going(life, "train-a2")
        come_late(life, 1)
        await asyncio.sleep(60)
        assert is_going(life, "train-a1") is False
        assert is_going(life, "train-a2")

    live(story)


def test_it_is_deleted_between_two_attempts() -> None:
    async def story(life: WatchedLife) -> None:
        await suspend_after_an_attempt(life)
        assert life.require("train")["status"]["phase"] == "Suspended"
        come_late(life, 1)
        await asyncio.sleep(60)
        assert is_going(life, "train-a1") is False

    live(story)


def test_it_is_the_attempts_own_when_it_comes_in_time() -> None:
    async def story(life: WatchedLife) -> None:
        refuse = True

        async def before(call: Call) -> None:
            if refuse and (call.method, call.resource) == ("POST", JOBSETS):
                raise TimeoutError

        life.api.before = before
        life.submit("train")
        await life.start()
        await asyncio.sleep(600)
        assert is_going(life, "train-a1") is None
        come_late(life, 1)
        refuse = False
        await asyncio.sleep(600)
        assert is_going(life, "train-a1")

    live(story)


def run_on(server: MemoryServer, jobsets: Informer, pods: Informer, *, phase: str) -> None:
    """Have a JobSet of the first attempt that goes on, and its pod."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    made = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    stored = server.store(JOBSETS, made)
    jobsets.remember(stored)
    labels = {**made["metadata"]["labels"], LABEL_JOBSET_UID: stored["metadata"]["uid"]}
    metadata = {"name": "pod", "namespace": "default", "uid": "p", "labels": labels}
    pods.remember({"metadata": {**metadata, "creationTimestamp": LONG_AGO}, "status": {"phase": phase}})


@pytest.mark.parametrize(("phase", "deleted"), [("Running", 1), ("Succeeded", 0)])
def test_a_finished_jobs_jobset_that_is_about_to_be_completed_keeps_its_logs(
    phase: str, deleted: int
) -> None:
    job = frayjob("train", **ENDED)
    job["status"] |= FINISHED

    def check(server: MemoryServer, *_: Any) -> None:
        deletions = [call for call in server.writes if call.method == "DELETE"]
        assert len(deletions) == deleted
        assert deleted or server.calls == []

    reconcile_for_an_hour([job], check, prepare=lambda *seen: run_on(*seen, phase=phase))


def test_what_the_cache_takes_for_obsolete_is_judged_by_the_job_as_it_is() -> None:
    """A new leader whose watch is late knows of the first attempt only, and sees the second one's JobSet."""

    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        run_on(server, jobsets, pods, phase="Running")
        body = server.find(FRAYJOBS, "train")
        assert body is not None
        body["status"] = {"attempts": [{"number": 1, "jobSet": "train-a1", "startTime": LONG_AGO}]}
        server.store(FRAYJOBS, body)

    def check(server: MemoryServer, *_: Any) -> None:
        assert [call for call in server.writes if call.resource == JOBSETS] == []

    job = frayjob("train", **ENDED)
    job["status"] |= FINISHED
    reconcile_for_an_hour([job], check, prepare=prepare)
