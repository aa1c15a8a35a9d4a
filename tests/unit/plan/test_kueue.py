"""What Kueue's Workload tells becomes words: why a JobSet waits in its queue, and why it was sent back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.jobset import build_attempt
from fray.plan.kueue import (
    WorkloadSummary,
    build_workload_summary,
    derive_deactivation,
    derive_queue_waiting,
)
from fray.plan.lifecycle import EndAttempt, RenumberHosts, decide
from fray.plan.observation import (
    Evidence,
    EvidenceKind,
    GangObservation,
    HostObservation,
    HostPhase,
    Suspension,
    Waiting,
)
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.status import find_condition
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType, Reason
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

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


DEACTIVATED = {"active": False}
HELP_NEEDED = Reason.QUEUE_INADMISSIBLE


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        # until 0.18
        ("Pending", Reason.WAITING_FOR_QUEUE),
        ("Inadmissible", HELP_NEEDED),
        ("Waiting", Reason.WAITING_FOR_QUEUE),
        # since 0.19
        ("WaitingForQuota", Reason.WAITING_FOR_QUEUE),
        ("WaitingForPreemptedWorkloads", Reason.WAITING_FOR_QUEUE),
        ("WaitingForPodsReady", Reason.WAITING_FOR_QUEUE),
        ("PendingEvaluation", Reason.WAITING_FOR_QUEUE),
        ("TopologyPlacementFailed", Reason.WAITING_FOR_QUEUE),
        ("Suspended", Reason.WAITING_FOR_QUEUE),
        ("NoMatchingFlavor", HELP_NEEDED),
        ("ExceedsMaxQuota", HELP_NEEDED),
        ("Misconfigured", HELP_NEEDED),
        # some day
        ("Unheard", Reason.WAITING_FOR_QUEUE),
    ],
)
def test_kueues_typed_reason_says_whether_waiting_helps(reason: str, expected: Reason) -> None:
    assert waits(summary(told("QuotaReserved", "False", reason, "words")))[0] is expected
    assert waits(summary(told("QuotaReserved", "False", reason)))[1].endswith(f"queue team: {reason}")


def test_a_deactivated_workload_is_told_before_why_it_was_not_admitted() -> None:
    workload = summary(told("QuotaReserved", "False", "Inadmissible", "it is deactivated"), spec=DEACTIVATED)
    assert waits(workload) == (
        Reason.QUEUE_DEACTIVATED,
        "Kueue has not admitted it to queue team: "
        "its Workload jobset-train-a1-1a2b3 is deactivated (spec.active is false)",
    )


@pytest.mark.parametrize(
    ("labels", "spec", "expected"),
    [
        ({}, {}, (None, None)),
        ({"kueue.x-k8s.io/queue-name": "own"}, {}, ("own", None)),
        (
            {"kueue.x-k8s.io/queue-name": "own", "kueue.x-k8s.io/priority-class": "high"},
            {},
            ("own", "high"),
        ),
        ({"kueue.x-k8s.io/priority-class": "high"}, {}, (None, "high")),
        ({"kueue.x-k8s.io/queue-name": ""}, {}, (None, None)),
        # the spec says all of it, or nothing
        (
            {"kueue.x-k8s.io/queue-name": "own", "kueue.x-k8s.io/priority-class": "high"},
            {"queue": {"name": "team"}},
            ("team", None),
        ),
    ],
)
def test_a_job_names_its_queue_in_its_spec_or_as_kueues_own_jobs_do(
    labels: dict[str, str], spec: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    plan = build_attempt(
        build_frayjob(metadata={"labels": labels}, **spec), attempt=1, settings=PlanSettings()
    )
    made = plan.jobset["metadata"]["labels"]
    names = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
    assert tuple(made.get(name) for name in names) == expected
    facts = {fact.subject: fact for fact in plan.facts}
    if expected[0] is not None:
        fact = facts[f"label {names[0]}"]
        assert fact.value == expected[0]
        assert fact.because.endswith(f"{'spec.queue' if spec else 'a label of the FrayJob'} says so")


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (None, ""),
        (summary(), ""),
        (summary(told("QuotaReserved", "False", "Pending", NO_QUOTA)), f": {NO_QUOTA}"),
        (summary(told("QuotaReserved", "True")), ""),
        (
            summary(told("QuotaReserved", "True"), admissionChecks=CHECKS),
            ": admission checks are pending: capacity (Waiting for resources), budget",
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
    assert waiting.reason is Reason.QUEUE_INADMISSIBLE
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
    workload = summary(*conditions)
    assert workload is not None
    assert (workload.eviction.text if workload.eviction is not None else None) == expected


def test_an_eviction_has_its_kind_and_its_time() -> None:
    at = {"lastTransitionTime": "2026-01-31T12:00:09Z"}
    workload = summary(told("Evicted", "True", "Preempted") | at)
    assert workload is not None
    text = "Kueue evicted it from queue team (Preempted)"
    assert workload.eviction == Evidence(EvidenceKind.QUEUE_EVICTED, text, START + timedelta(seconds=9))


# --- what follows from it ------------------------------------------------------------------------------


def gang(phase: HostPhase, **rest: Any) -> GangObservation:
    started = START + timedelta(seconds=30) if phase is HostPhase.RUNNING else None
    return GangObservation((HostObservation(0, 0, 0, "pod", phase, started_at=started),), **rest)


def because(text: str) -> Suspension:
    return Suspension(Evidence(EvidenceKind.QUEUE_EVICTED, text))


def decided(observed: GangObservation, attempt: AttemptStatus = ATTEMPT, **spec: Any) -> tuple[Any, Any]:
    job = with_status(build_frayjob(**spec), FrayJobStatus(attempts=[attempt], start_time=attempt.start_time))
    decision = decide(job, observed, now=START + timedelta(hours=2), policy=RetryPolicy(10, 40))
    return decision.action, decision


def test_an_eviction_ends_the_attempt_that_has_begun_and_names_kueue() -> None:
    why = "Kueue evicted it from queue team (Preempted: for another)"
    action, decision = decided(gang(HostPhase.RUNNING, held=True, suspension=because(why)))
    assert action == EndAttempt(1, Reason.SUSPENDED)
    assert decision.status.attempts[0].message == why


def test_an_eviction_that_is_seen_after_the_pods_ended_names_kueue_too() -> None:
    ending = ATTEMPT.model_copy(update={"reason": "KilledBySignal", "message": "rank 0 was killed"})
    why = "Kueue evicted it from queue team (Preempted)"
    observed = gang(HostPhase.FAILED, held=True, suspension=because(why), settled=False)
    action, decision = decided(observed, ending)
    assert action == EndAttempt(1, Reason.SUSPENDED)
    assert decision.status.attempts[0].message == why


def deactivated(*, suspended: bool = True) -> GangObservation:
    """Return a gang that Kueue evicted since its Workload was deactivated."""
    workload = summary(told("Evicted", "True", "Deactivated"), spec=DEACTIVATED)
    waiting = derive_deactivation(workload)
    return gang(
        HostPhase.PENDING,
        held=suspended,
        suspension=Suspension(workload.eviction) if suspended and workload is not None else None,
        waiting=waiting,
        settled=False,
    )


RAN = ATTEMPT.model_copy(update={"running_time": "2026-01-31T12:01:00.000Z"})
EVICTED = RAN.model_copy(update={"reason": "Suspended", "message": "Kueue evicted it"})


def test_who_deactivates_a_workload_gets_no_next_attempt_and_the_job_says_so() -> None:
    for attempt in (RAN, EVICTED):
        action, decision = decided(deactivated(), attempt)
        assert action is None, "its JobSet stays: it is what can be activated"
        assert (decision.status.phase, decision.status.reason) == ("Suspended", "QueueDeactivated")
        condition = find_condition(decision.status, ConditionType.RUNNING)
        assert condition is not None
        assert condition.message == (
            "Kueue evicted it from queue team, and no next attempt starts: "
            "its Workload jobset-train-a1-1a2b3 is deactivated (spec.active is false)"
        )
        (recorded,) = decision.status.attempts
        assert (recorded.reason, recorded.verdict) == ("Suspended", None)


def test_an_attempt_ends_once_its_workload_is_activated_or_its_jobset_runs() -> None:
    evicted = gang(HostPhase.PENDING, suspension=Suspension(), held=True, settled=False)
    assert decided(evicted, EVICTED)[0] == EndAttempt(1, Reason.SUSPENDED)
    assert decided(deactivated(suspended=False), EVICTED)[0] == EndAttempt(1, Reason.SUSPENDED)


def test_a_deactivated_workload_outlives_neither_a_stop_nor_the_jobs_time() -> None:
    assert decided(deactivated(), EVICTED, stopped=True)[0] == EndAttempt(1, Reason.SUSPENDED)
    assert decided(deactivated(), EVICTED, timeouts={"totalSeconds": 3600})[0] == EndAttempt(
        1, Reason.SUSPENDED
    )
    action, decision = decided(deactivated(), EVICTED, timeouts={"totalSeconds": 10800})
    assert action is None
    assert decision.wake_at == START + timedelta(hours=3)


def requeued(*, host: str | None = None, misnumbered: bool = False, by_kueue: bool = True) -> GangObservation:
    """Return a gang that Kueue evicted and will resume; without a host, unless it has a name."""
    hosts = (HostObservation(0, 0, 0, host, HostPhase.PENDING),)
    suspension = Suspension(requeued=by_kueue)
    return GangObservation(hosts, misnumbered=misnumbered, suspension=suspension, held=True, settled=False)


def test_an_evicted_jobset_becomes_that_of_the_next_attempt_once_no_host_is_left() -> None:
    action, decision = decided(requeued(host="pod"), EVICTED)
    assert action is None, "its JobSet stays: it has the place in the queue"
    assert [attempt.verdict for attempt in decision.status.attempts] == [None]
    action, decision = decided(requeued(), EVICTED)
    assert action == RenumberHosts(2)
    told = [(each.number, each.job_set, each.verdict) for each in decision.status.attempts]
    assert told == [(1, "train-a1", "Suspended"), (2, "train-a1", None)]
    assert decision.status.retries is not None
    assert decision.status.retries.preemptions_used == decision.status.retries.failures_used == 0


@pytest.mark.parametrize(
    "spec",
    [{"stopped": True}, {"suspend": True}, {"timeouts": {"totalSeconds": 3600}}],
    ids=lambda spec: next(iter(spec)),
)
def test_an_evicted_jobset_is_deleted_when_the_job_shall_not_go_on(spec: dict[str, Any]) -> None:
    assert decided(requeued(), EVICTED, **spec)[0] == EndAttempt(1, Reason.SUSPENDED)


def test_the_number_is_told_anew_whenever_it_is_not_that_of_the_attempt() -> None:
    later = ATTEMPT.model_copy(update={"number": 2})
    assert decided(requeued(misnumbered=True), later)[0] == RenumberHosts(2)
    assert decided(requeued(misnumbered=True, host="pod"), later)[0] is None, "a host is left"
    assert decided(requeued(misnumbered=True, by_kueue=False), later)[0] is None, "it may not be Kueue's"
    assert decided(requeued(), later)[0] is None


def test_hosts_that_were_told_another_number_end_uncharged_whatever_became_of_them() -> None:
    later = ATTEMPT.model_copy(update={"number": 2})
    for phase in (HostPhase.RUNNING, HostPhase.FAILED):
        action, decision = decided(gang(phase, misnumbered=True, settled=False), later)
        assert action == EndAttempt(2, Reason.SUSPENDED)
        (attempt,) = decision.status.attempts
        assert attempt.message == (
            "its JobSet was resumed before its hosts could get the number of this attempt"
        )


def test_a_job_that_was_suspended_too_waits_for_its_workload_all_the_same() -> None:
    assert decided(deactivated(), EVICTED, suspend=True)[0] is None


def test_words_about_an_eviction_are_made_fit_to_be_shown() -> None:
    workload = summary(told("Evicted", "True", "Preempted", "\x1b[31mred\x1b[0m"))
    assert workload is not None
    assert workload.eviction is not None
    assert workload.eviction.text == "Kueue evicted it from queue team (Preempted: red)"


def test_a_job_in_a_queue_says_so_on_both_conditions_and_goes_on_with_its_attempt() -> None:
    waiting = Waiting(Reason.WAITING_FOR_QUEUE, "Kueue has not admitted it to queue team")
    action, decision = decided(gang(HostPhase.PENDING, suspension=Suspension(), held=True, waiting=waiting))
    assert action is None
    assert (decision.status.phase, decision.status.reason) == ("Pending", "WaitingForQueue")
    for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING):
        condition = find_condition(decision.status, kind)
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "WaitingForQueue")
        assert condition.message == waiting.message
