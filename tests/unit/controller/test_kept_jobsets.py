"""The JobSets of a job's last three attempts stay, for their logs; older ones go, and none that is needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID
from fray.wire.frayjob import FrayJob
from fray_operator.cleanup import find_expendable
from tests.unit.controller.an_hour import LONG_AGO
from tests.unit.controller.watched_life import WatchedLife, live

SUCCESS = {"verdict": "Success", "reason": "Completed", "endTime": LONG_AGO, "runningTime": LONG_AGO}


def job_of(*numbers: int, names: str = "train-a{}") -> FrayJob:
    attempts = [{"number": number, "jobSet": names.format(number)} for number in numbers]
    metadata = {"name": "train", "namespace": "default", "uid": "u"}
    spec = {"entrypoint": {"command": ["train"]}}
    return FrayJob.from_manifest({"metadata": metadata, "spec": spec, "status": {"attempts": attempts}})


def jobset_of(number: int, **metadata: Any) -> Manifest:
    body: Manifest = build_attempt(job_of(), attempt=number, settings=PlanSettings()).jobset
    body["metadata"] |= {"uid": f"j{number}", **metadata}
    return body


def expendable(job: FrayJob, *jobsets: Manifest) -> list[str]:
    return [jobset["metadata"]["name"] for jobset in find_expendable(job, jobsets)]


ALL = [jobset_of(number) for number in range(1, 13)]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 2, 3], []),
        ([1, 2, 3, 4], ["train-a1"]),
        # The status remembers ten, but there may be JobSets of more.
        (range(3, 13), [f"train-a{number}" for number in range(1, 10)]),
        # Somebody took most from the status: their numbers still tell.
        ([7], ["train-a1", "train-a2", "train-a3", "train-a4"]),
    ],
)
def test_jobsets_of_all_but_the_last_three_attempts_are_expendable(
    attempts: list[int], expected: list[str]
) -> None:
    assert expendable(job_of(*attempts), *ALL) == expected


@pytest.mark.parametrize(
    "jobset",
    [
        jobset_of(1, ownerReferences=[{"kind": "FrayJob", "name": "train", "uid": "v", "controller": True}]),
        jobset_of(1, deletionTimestamp=LONG_AGO),
        jobset_of(1, labels={LABEL_JOB_UID: "u"}),
        jobset_of(1, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "first"}),
        jobset_of(1, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "-1"}),
        # Labels may be edited, names not.
        jobset_of(5, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "1"}),
        jobset_of(4, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "1"}),
        jobset_of(1, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "5"}),
    ],
    ids=["another's", "going", "no number", "no whole number", "negative", "current", "kept", "says current"],
)
def test_others_jobsets_and_those_that_may_be_needed_stay(jobset: Manifest) -> None:
    assert expendable(job_of(1, 2, 3, 4, 5), jobset) == []


def test_a_jobset_of_a_kept_attempt_that_the_status_forgot_stays() -> None:
    mislabelled = jobset_of(6, labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "1"})
    assert expendable(job_of(7), mislabelled) == []


def test_a_jobset_that_another_version_named_stays_while_it_is_of_a_kept_attempt() -> None:
    job = job_of(4, 5, names="train-x{}")
    mislabelled = jobset_of(5, name="train-x5", labels={LABEL_JOB_UID: "u", LABEL_ATTEMPT: "2"})
    old = jobset_of(2, name="train-x2")
    assert expendable(job, mislabelled, old) == ["train-x2"]


def test_workers_go_with_the_jobset_of_their_attempt() -> None:
    def workers_of(number: int, generation: int) -> Manifest:
        body = build_worker_job(
            job_of(), attempt=number, generation=generation, count=2, settings=PlanSettings()
        ).manifest
        body["metadata"] |= {"uid": f"w{number}"}
        return body

    mislabelled = workers_of(5, 2)
    mislabelled["metadata"]["labels"][LABEL_ATTEMPT] = "1"
    made = [workers_of(1, 1), workers_of(2, 3), workers_of(3, 1), mislabelled]
    assert expendable(job_of(5), *made) == ["train-a1-w1", "train-a2-w3"]


def test_a_jobset_whose_owner_was_taken_away_is_the_jobs_all_the_same() -> None:
    assert expendable(job_of(4), jobset_of(1, ownerReferences=[])) == ["train-a1"]


# --- in a life ------------------------------------------------------------------------------------------


def end_attempt(life: WatchedLife, number: int) -> None:
    """Have the JobSet of an attempt fail with its pod gone."""
    jobset = life.server.find(JOBSETS, f"train-a{number}")
    assert jobset is not None
    told = {"reason": "FailedJobs", "message": "a pod failed", "lastTransitionTime": life.now().isoformat()}
    status = {"conditions": [{"type": "Failed", "status": "True", **told}]}
    life.server.store(JOBSETS, {**jobset, "status": status})


def left(life: WatchedLife) -> list[str]:
    jobsets = [body["metadata"] for body in life.server.all(JOBSETS)]
    return [metadata["name"] for metadata in jobsets if "deletionTimestamp" not in metadata]


@pytest.mark.parametrize("restarts", [False, True])
def test_five_attempts_leave_three_jobsets_and_each_old_one_is_deleted_once(*, restarts: bool) -> None:
    async def story(life: WatchedLife) -> None:
        life.submit("train", retries={"failures": 4})
        await life.start()
        for number in range(1, 6):
            await asyncio.sleep(400)
            end_attempt(life, number)
            if restarts:
                await life.kill()
                await life.start()
        await asyncio.sleep(400)
        assert life.require("train")["status"]["phase"] == "Failed"
        assert len(life.require("train")["status"]["attempts"]) == 5
        assert left(life) == ["train-a3", "train-a4", "train-a5"]
        deletions = {call: count for call, count in life.calls().items() if call.startswith("DELETE")}
        assert deletions == {"DELETE jobsets train-a1": 1, "DELETE jobsets train-a2": 1}

    live(story)


def test_a_finished_job_keeps_its_jobsets() -> None:
    async def story(life: WatchedLife) -> None:
        body = life.submit("train")
        for number in range(1, 6):
            manifest = jobset_of(number)
            manifest["metadata"]["labels"][LABEL_JOB_UID] = body["metadata"]["uid"]
            life.server.store(JOBSETS, manifest)
        life.finish("train", attempts=[{"number": 5, "jobSet": "train-a5", **SUCCESS}])
        await life.start()
        await asyncio.sleep(1000)
        assert not [call for call in life.calls() if call.startswith("DELETE")]

    live(story)
