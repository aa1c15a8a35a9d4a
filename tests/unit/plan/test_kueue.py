"""What Kueue's Workload tells becomes words: why a JobSet waits in its queue, and why it was sent back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.kueue import WorkloadSummary, build_workload_summary, derive_queue_waiting, describe_eviction
from fray.plan.lifecycle import EndAttempt, decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.vocabulary import ConditionType, Reason
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import make_job, with_status

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NO_QUOTA = (
    "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor v5p, "
    "8 more needed"
)
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
)
JOBSET = {"metadata": {"name": "train-a1", "labels": {"kueue.x-k8s.io/queue-name": "team"}}}
ATTEMPT = AttemptStatus(number=1, job_set="train-a1", start_time="2026-01-31T12:00:00.000Z")


def told(kind: str, status: str, reason: str = "Because", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def summary(*conditions: dict[str, str], owner: str = "JobSet", **rest: Any) -> WorkloadSummary | None:
    metadata = {"name": "jobset-train-a1-1a2b3", "ownerReferences": [{"kind": owner, "uid": "u"}]}
    spec = {"queueName": "team", "podSets": [], **rest.pop("spec", {})}
    return build_workload_summary(
        {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **rest}}
    )


def waits(workload: WorkloadSummary | None, **labels: str) -> tuple[Reason, str]:
    metadata = {"name": "train-a1", "labels": {"kueue.x-k8s.io/queue-name": "team", **labels}}
    waiting = derive_queue_waiting({"metadata": metadata}, workload)
    return waiting.reason, waiting.message


CHECKS = [
    {"name": "capacity", "state": "Pending", "message": "Waiting for\nresources"},
    {"name": "budget", "state": "Retry", "message": ""},
    {"name": "license", "state": "Ready", "message": "granted"},
]


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (None, ""),
        (summary(), ""),
        (summary(told("QuotaReserved", "False", "Pending", NO_QUOTA)), f": {NO_QUOTA}"),
        (
            summary(told("QuotaReserved", "False", "Inadmissible", "LocalQueue team doesn't exist")),
            ": LocalQueue team doesn't exist",
        ),
        (summary(told("QuotaReserved", "True")), ""),
        (
            summary(told("QuotaReserved", "True"), admissionChecks=CHECKS),
            ": admission checks are pending: capacity (Waiting for resources), budget",
        ),
        (
            summary(told("QuotaReserved", "False", "Pending", "deactivated"), spec={"active": False}),
            ": its Workload jobset-train-a1-1a2b3 is deactivated (spec.active is false)",
        ),
        (
            summary(told("QuotaReserved", "False", "Pending", NO_QUOTA), spec={"active": True}),
            f": {NO_QUOTA}",
        ),
    ],
)
def test_a_job_in_a_queue_is_told_in_kueues_words(workload: WorkloadSummary | None, why: str) -> None:
    assert waits(workload) == (Reason.WAITING_FOR_QUEUE, f"Kueue has not admitted it to queue team{why}")


def test_endless_words_are_cut() -> None:
    _, message = waits(summary(told("QuotaReserved", "False", "Pending", "very " * 500)))
    assert len(message) < 450
    assert message.endswith("...")


def test_a_workload_that_should_be_there_and_is_not_is_told_with_what_may_be_missing() -> None:
    labels = JOBSET["metadata"]["labels"] | {"kueue.x-k8s.io/priority-class": "urgent"}
    metadata = {"name": "train-a1", "labels": labels}
    held = "Kueue has not admitted it to queue team: there is no Workload of JobSet train-a1"
    assert derive_queue_waiting(JOBSET, None, missing=True).message == held
    assert derive_queue_waiting({"metadata": metadata}, None, missing=True).message == (
        f"{held}; is there a WorkloadPriorityClass urgent?"
    )


def test_a_jobset_that_names_no_queue_is_kueues_only_if_it_has_a_workload() -> None:
    bare: dict[str, Any] = {"metadata": {"name": "train-a1"}}
    waiting = derive_queue_waiting(bare, None)
    assert waiting == Waiting(Reason.SUSPENDED, "its JobSet is suspended, and not by this job's spec.suspend")
    nameless = summary(told("QuotaReserved", "False", "Inadmissible", "no queue"), spec={"queueName": ""})
    waiting = derive_queue_waiting(bare, nameless)
    assert waiting.reason is Reason.WAITING_FOR_QUEUE
    assert waiting.message == (
        "Kueue has not admitted it to a queue: the job names none in spec.queue: no queue"
    )


def test_a_workload_of_something_else_is_nobodys() -> None:
    assert summary(owner="Job") is None
    assert build_workload_summary({"metadata": {"name": "w"}}) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([told("Evicted", "False", "QuotaReserved", "Previously: Preempted")], None),
        (
            [told("Evicted", "True", "Preempted", PREEMPTED)],
            f"Kueue evicted it from queue team (Preempted: {PREEMPTED})",
        ),
        ([told("Evicted", "True", "Deactivated")], "Kueue evicted it from queue team (Deactivated)"),
    ],
)
def test_an_eviction_is_told_with_its_reason(conditions: list[dict[str, str]], expected: str | None) -> None:
    assert describe_eviction(summary(*conditions)) == expected
    assert describe_eviction(None) is None


# --- what follows from it ------------------------------------------------------------------------------


def gang(phase: HostPhase, **rest: Any) -> GangObservation:
    started = START + timedelta(seconds=30) if phase is HostPhase.RUNNING else None
    return GangObservation((HostObservation(0, 0, 0, "pod", phase, started_at=started),), **rest)


def decided(observed: GangObservation, attempt: AttemptStatus = ATTEMPT, **spec: Any) -> tuple[Any, Any]:
    job = with_status(make_job(**spec), FrayJobStatus(attempts=[attempt], start_time=attempt.start_time))
    decision = decide(job, observed, now=START + timedelta(hours=2), policy=RetryPolicy(10, 40))
    return decision.action, decision


def test_an_eviction_ends_the_attempt_that_has_begun_and_names_kueue() -> None:
    why = "Kueue evicted it from queue team (Preempted: for another)"
    action, decision = decided(gang(HostPhase.RUNNING, suspended=True, held=True, suspension=why))
    assert action == EndAttempt(1, Reason.SUSPENDED)
    assert decision.status.attempts[0].message == why


def test_an_eviction_that_is_seen_after_the_pods_ended_names_kueue_too() -> None:
    ending = ATTEMPT.model_copy(update={"reason": "KilledBySignal", "message": "rank 0 was killed"})
    why = "Kueue evicted it from queue team (Preempted)"
    observed = gang(HostPhase.FAILED, suspended=True, held=True, suspension=why, settled=False)
    action, decision = decided(observed, ending)
    assert action == EndAttempt(1, Reason.SUSPENDED)
    assert decision.status.attempts[0].message == why


def test_words_about_an_eviction_are_made_fit_to_be_shown() -> None:
    assert gang(HostPhase.RUNNING, suspension="\x1b[31mred\x1b[0m").suspension == "red"


def test_a_job_in_a_queue_says_so_on_both_conditions_and_goes_on_with_its_attempt() -> None:
    waiting = Waiting(Reason.WAITING_FOR_QUEUE, "Kueue has not admitted it to queue team")
    action, decision = decided(gang(HostPhase.PENDING, suspended=True, held=True, waiting=waiting))
    assert action is None
    assert (decision.status.phase, decision.status.reason) == ("Pending", "WaitingForQueue")
    for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING):
        condition = find_condition(decision.status, kind)
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "WaitingForQueue")
        assert condition.message == waiting.message
