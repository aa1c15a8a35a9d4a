"""What users are told of a job: by its conditions, as `fray.plan.status` writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.cluster.progress import describe_frayjob
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.status import Ending, Outlook, Stage, derive_status
from fray.testing import build_frayjob
from fray.types import JobInfo, JobStatus, TaskStatus
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, RetryCounts

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
START = "2026-01-31T11:59:00.000Z"
FIRST = AttemptStatus(number=1, job_set="train-a1", start_time=START)
TPU = {"resources": {"tpu": {"type": "v5p-16"}}}
P, R, S, F = HostPhase.PENDING, HostPhase.RUNNING, HostPhase.SUCCEEDED, HostPhase.FAILED
PENDING, RUNNING = JobStatus.PENDING, JobStatus.RUNNING


def gang(*phases: HostPhase, placed: bool = True) -> GangObservation:
    node = "node" if placed else None
    return GangObservation(
        tuple(HostObservation(0, rank, rank, f"p-{rank}", phase, node) for rank, phase in enumerate(phases))
    )


def told(
    outlook: Outlook,
    observed: GangObservation | None = None,
    *,
    attempt: AttemptStatus = FIRST,
    job: FrayJob | None = None,
) -> JobInfo:
    job = job or build_frayjob(replicas=2)
    status = derive_status(job, observed, (attempt,), RetryCounts(), outlook, NOW)
    return describe_frayjob(job.model_copy(update={"status": status}))


def ended(kind: ConditionType, reason: Reason, message: str) -> Outlook:
    return Outlook(Stage.FINISHED, ending=Ending(kind, reason, message))


def test_a_job_that_nobody_has_looked_at() -> None:
    info = describe_frayjob(build_frayjob(replicas=2))
    assert info == JobInfo(job_id=info.job_id, status=PENDING, tasks=(TaskStatus(PENDING),) * 2, name="train")
    assert info.job_id == "train"


BUSY = Waiting(Reason.INSUFFICIENT_CAPACITY, "0 of 3 nodes have room")
UNSUPPORTED = Waiting(Reason.POD_TEMPLATE_INVALID, "put packages into the image")


@pytest.mark.parametrize(
    ("outlook", "observed", "status", "reason", "pending_reason"),
    [
        (Outlook(Stage.STARTING), None, PENDING, "HostsStarting", "2 of 2 hosts are starting"),
        (
            Outlook(Stage.LIVE, waiting=BUSY),
            gang(P, P, placed=False),
            PENDING,
            "InsufficientCapacity",
            "0 of 3 nodes have room",
        ),
        (Outlook(Stage.LIVE), gang(R, P), PENDING, "HostsStarting", "1 of 2 hosts are starting"),
        (Outlook(Stage.LIVE), gang(R, R), RUNNING, "AllHostsRunning", None),
        (Outlook(Stage.LIVE), gang(S, R), RUNNING, "AllHostsRunning", None),
        (Outlook(Stage.ENDING), gang(R, F), RUNNING, "Stopping", None),
        (Outlook(Stage.SUSPENDED), None, PENDING, "Suspended", "spec.suspend is true"),
        (
            Outlook(Stage.BACKING_OFF, until=NOW),
            None,
            PENDING,
            "BackOff",
            "attempt 1 ended: ; attempt 2 starts at 2026-01-31T12:00:00.000Z",
        ),
        (
            Outlook(Stage.UNSUPPORTED, unsupported=UNSUPPORTED),
            None,
            PENDING,
            "PodTemplateInvalid",
            "put packages into the image",
        ),
    ],
)
def test_a_job_that_has_not_ended(
    outlook: Outlook,
    observed: GangObservation | None,
    status: JobStatus,
    reason: str,
    pending_reason: str | None,
) -> None:
    info = told(outlook, observed)
    assert (info.status, info.reason, info.pending_reason) == (status, reason, pending_reason)
    assert info.tasks == (TaskStatus(status),) * 2
    assert info.error_message is info.end_time is None
    assert info.start_time == NOW.timestamp() - 60


def test_a_job_that_succeeded() -> None:
    outlook = ended(ConditionType.SUCCEEDED, Reason.COMPLETED, "all hosts ended well in attempt 1")
    info = told(outlook, gang(S, S))
    assert (info.status, info.reason) == (JobStatus.SUCCEEDED, "Completed")
    assert info.tasks == (TaskStatus(JobStatus.SUCCEEDED),) * 2
    assert info.error_message is info.pending_reason is None
    assert info.end_time == NOW.timestamp()


def test_a_job_that_was_stopped() -> None:
    info = told(ended(ConditionType.STOPPED, Reason.STOP_REQUESTED, "spec.stopped is true"))
    assert (info.status, info.error_message) == (JobStatus.STOPPED, "spec.stopped is true")
    assert info.tasks == (TaskStatus(JobStatus.STOPPED),) * 2


@pytest.mark.parametrize(
    ("spec", "rank", "failed_replica"),
    [
        ({"replicas": 3}, 1, 1),
        ({"replicas": 3}, 0, 0),
        ({"replicas": 3, **TPU}, 1, 0),
        ({"replicas": 3, **TPU}, 4, 2),
        ({"replicas": 3, **TPU}, 5, 2),
        ({"replicas": 3}, None, None),
        ({"replicas": 3}, 7, None),
    ],
)
def test_a_job_that_failed_names_who_ended_it(
    spec: dict[str, Any], rank: int | None, failed_replica: int | None
) -> None:
    message = "rank exited with code 3\nTraceback"
    attempt = FIRST.model_copy(
        update={"verdict": "Failure", "reason": "NonZeroExit", "message": message, "rank": rank}
    )
    outlook = ended(ConditionType.FAILED, Reason.NON_ZERO_EXIT, f"{message} in attempt 1")
    info = told(outlook, attempt=attempt, job=build_frayjob(**spec))
    assert (info.status, info.reason) == (JobStatus.FAILED, "NonZeroExit")
    assert info.error_message == f"{message} in attempt 1"
    expected = [TaskStatus(JobStatus.FAILED)] * 3
    if failed_replica is not None:
        expected = [TaskStatus(JobStatus.STOPPED)] * 3
        expected[failed_replica] = TaskStatus(JobStatus.FAILED, message)
    assert list(info.tasks) == expected


def test_a_time_limit_between_attempts_is_nobodys_fault() -> None:
    attempt = FIRST.model_copy(update={"verdict": "Failure", "reason": "NonZeroExit", "rank": 0})
    info = told(ended(ConditionType.FAILED, Reason.TOTAL_TIMEOUT, "it took too long"), attempt=attempt)
    assert info.tasks == (TaskStatus(JobStatus.FAILED),) * 2
    assert info.error_message == "it took too long"


def test_hardware_of_a_newer_version_is_no_obstacle() -> None:
    attempt = FIRST.model_copy(update={"verdict": "Failure", "reason": "NonZeroExit", "rank": 0})
    outlook = ended(ConditionType.FAILED, Reason.NON_ZERO_EXIT, "rank 0 exited with code 1")
    status = derive_status(build_frayjob(replicas=2), None, (attempt,), RetryCounts(), outlook, NOW)
    newer = build_frayjob(replicas=2, resources={"tpu": {"type": "v99-8"}})
    info = describe_frayjob(newer.model_copy(update={"status": status}))
    assert info.tasks == (TaskStatus(JobStatus.FAILED),) * 2


def test_the_name_is_the_authors() -> None:
    job = build_frayjob("train-lm-ab1d4b91", metadata={"annotations": {"fray.dev/original-name": "train_lm"}})
    info = describe_frayjob(job)
    assert (info.job_id, info.name) == ("train-lm-ab1d4b91", "train_lm")


def test_fields_that_this_version_does_not_know_are_ignored() -> None:
    manifest = build_frayjob().to_manifest()
    manifest["spec"]["novelty"] = 1
    manifest["metadata"]["managedFields"] = []
    assert describe_frayjob(FrayJob.from_manifest(manifest)).status is PENDING


@pytest.mark.parametrize(
    ("kind", "reason", "exit_code", "told_code"),
    [
        (ConditionType.SUCCEEDED, Reason.COMPLETED, 0, 0),
        (ConditionType.FAILED, Reason.NON_ZERO_EXIT, 9, 9),
        (ConditionType.FAILED, Reason.PENDING_TIMEOUT, None, 124),
        (ConditionType.FAILED, Reason.NON_ZERO_EXIT, 0, 1),
        (ConditionType.STOPPED, Reason.STOP_REQUESTED, 143, 143),
    ],
)
def test_an_end_has_the_exit_code_that_a_shell_is_told(
    kind: ConditionType, reason: Reason, exit_code: int | None, told_code: int
) -> None:
    attempt = FIRST.model_copy(update={"reason": reason.value, "exit_code": exit_code, "rank": 0})
    assert told(ended(kind, reason, "so"), attempt=attempt).exit_code == told_code
    assert told(Outlook(Stage.STARTING)).exit_code is None
