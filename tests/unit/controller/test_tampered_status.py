"""What somebody writes into a status or onto labels, and what is seen in spite of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_ATTEMPT, LABEL_COMPLETION_INDEX, LABEL_JOB_UID, LABEL_JOBSET_UID
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.ownership import find_unrecorded
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

FIRST = {
    "number": 1,
    "jobSet": "train-a1",
    "startTime": LONG_AGO,
    "endTime": LONG_AGO,
    "verdict": "Failure",
    "reason": "NonZeroExit",
}
SECOND = {"number": 2, "jobSet": "train-a2", "startTime": LONG_AGO, "runningTime": LONG_AGO}
TRUE: dict[str, Any] = {
    "attempts": [FIRST, SECOND],
    "retries": {"failuresUsed": 1, "preemptionsUsed": 0},
    "startTime": LONG_AGO,
}
"""The status of a job whose first attempt failed and whose second runs."""

Forge = Callable[[Manifest], None]


def job_with(status: Manifest) -> Manifest:
    return {**frayjob("train", spec={"retries": {"failures": 3}}), "status": status}


def run_second_attempt(
    server: MemoryServer, jobsets: Informer, pods: Informer, forge: Forge = lambda _: None
) -> None:
    """Have the JobSet of the first attempt, which failed, and that of the second, whose pod runs."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    for number in (1, 2):
        made = build_attempt(FrayJob.from_manifest(body), attempt=number, settings=PlanSettings()).jobset
        made["metadata"]["creationTimestamp"] = LONG_AGO
        if number == 1:
            made["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        labels = dict(made["metadata"]["labels"])
        if number == 2:
            forge(made)
        stored = server.store(JOBSETS, made)
        jobsets.remember(stored)
    labels |= {LABEL_JOBSET_UID: stored["metadata"]["uid"], LABEL_COMPLETION_INDEX: "0"}
    running = {"name": "main", "state": {"running": {"startedAt": LONG_AGO}}}
    metadata = {"name": "pod", "namespace": "default", "uid": "p", "creationTimestamp": LONG_AGO}
    pod = {"metadata": {**metadata, "labels": labels}, "spec": {"nodeName": "n"}}
    pods.remember({**pod, "status": {"phase": "Running", "containerStatuses": [running]}})


def check_it_runs_on(attempts: list[int], failures: int) -> Any:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        status = job["status"]
        assert [call.method for call in server.writes if call.resource is JOBSETS] == []
        assert [attempt["number"] for attempt in status["attempts"]] == attempts
        last = status["attempts"][-1]
        assert (last["jobSet"], last["startTime"], last["runningTime"]) == ("train-a2", LONG_AGO, LONG_AGO)
        assert (status["phase"], status["attempt"]) == ("Running", 2)
        assert status["retries"]["failuresUsed"] == failures
        assert {c["type"]: c["status"] for c in status["conditions"]} == {
            "Accepted": "True",
            "Scheduled": "True",
            "Running": "True",
            "Finished": "False",
        }
        assert passes(metrics, "error") == 0

    return check


@pytest.mark.parametrize(
    ("status", "attempts", "failures"),
    [
        (TRUE, [1, 2], 1),
        ({}, [2], 0),
        (TRUE | {"attempts": []}, [2], 1),
        (TRUE | {"attempts": [FIRST]}, [1, 2], 1),
        (TRUE | {"attempts": [SECOND]}, [2], 1),
        (TRUE | {"attempts": [FIRST, SECOND | {"number": 7}]}, [1, 2], 1),
        ({"attempts": [FIRST, SECOND]}, [1, 2], 1),
        (TRUE | {"phase": "Failed", "attempt": 9, "reason": "x", "replicas": {"total": 99}}, [1, 2], 1),
    ],
    ids=[
        "as it is",
        "nothing left",
        "no attempts",
        "the one that runs is missing",
        "the first is missing",
        "another number",
        "no counts",
        "what is derived",
    ],
)
def test_an_attempt_runs_on_whatever_the_status_says(
    status: Manifest, attempts: list[int], failures: int
) -> None:
    reconcile_for_an_hour(
        [job_with(status)], check_it_runs_on(attempts, failures), prepare=run_second_attempt
    )


def a_jobset(number: int, *, uid: str = "u-1", end: str | None = None, **more: str) -> Manifest:
    labels = {LABEL_JOB_UID: uid, LABEL_ATTEMPT: str(number)}
    conditions = [] if end is None else [{"type": end, "status": "True"}]
    metadata = {"name": f"train-a{number}", "labels": labels, "creationTimestamp": LONG_AGO, **more}
    return {"metadata": metadata, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("attempts", "jobsets", "found"),
    [
        ([], [], None),
        ([], [a_jobset(1), a_jobset(3)], 3),
        ([], [a_jobset(2, end="Failed")], None),
        ([], [a_jobset(2, deletionTimestamp=LONG_AGO)], None),
        ([], [a_jobset(2, uid="u-9")], None),
        ([FIRST], [a_jobset(3)], 3),
        # its JobSets will tell what became of the first, and then of the second
        ([FIRST | {"verdict": None}], [a_jobset(2)], None),
        ([FIRST | {"number": 5}], [a_jobset(3)], None),
    ],
    ids=[
        "nothing",
        "the newest",
        "one that has ended",
        "one that is being deleted",
        "another job's",
        "later than the last",
        "an older status",
        "older than what is kept",
    ],
)
def test_which_attempt_is_missing_in_a_status(
    attempts: list[Manifest], jobsets: list[Manifest], found: int | None
) -> None:
    body = job_with({"attempts": attempts})
    body["metadata"]["uid"] = "u-1"
    attempt = find_unrecorded(FrayJob.from_manifest(body), jobsets)
    assert (attempt.number if attempt is not None else None) == found


def forge_attempt(jobset: Manifest) -> None:
    jobset["metadata"]["labels"][LABEL_ATTEMPT] = "7"


def lose_attempt(jobset: Manifest) -> None:
    del jobset["metadata"]["labels"][LABEL_ATTEMPT]


def forge_uid(jobset: Manifest) -> None:
    jobset["metadata"]["labels"][LABEL_JOB_UID] = "u-9"


@pytest.mark.parametrize("forge", [forge_attempt, lose_attempt, forge_uid])
def test_an_attempt_runs_on_whatever_the_labels_of_its_jobset_say(forge: Forge) -> None:
    reconcile_for_an_hour(
        [job_with(TRUE)],
        check_it_runs_on([1, 2], 1),
        prepare=lambda *seen: run_second_attempt(*seen, forge=forge),
    )


@pytest.mark.parametrize("verdict", ["Success", "Failure", "Stopped"])
def test_a_finished_job_that_lost_its_conditions_is_finished_again(verdict: str) -> None:
    ended = FIRST | {"verdict": verdict, "message": "the story"}
    status = {"attempts": [ended], "retries": {"failuresUsed": 9, "preemptionsUsed": 0}}

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        told = {c["type"]: c["status"] for c in job["status"]["conditions"]}
        kind = {"Success": "Succeeded", "Failure": "Failed"}.get(verdict, verdict)
        assert (told["Finished"], told[kind]) == ("True", "True")
        assert [call for call in server.calls if call.resource is JOBSETS] == []
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([job_with(status)], check)
