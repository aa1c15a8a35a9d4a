"""What a status tells: conditions with history, a word for printing, counts; nothing new without an event."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.status import Ending, Outlook, Stage, derive_status, find_condition, is_finished
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import (
    AttemptStatus,
    AvoidedNode,
    FrayJobStatus,
    ReplicaCounts,
    RetryCounts,
)
from tests.unit.plan.frayjobs import with_spec, with_status

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
START = "2026-01-31T11:59:00.000Z"
COUNTS = RetryCounts(failures_used=0, preemptions_used=0)
FIRST = AttemptStatus(number=1, job_set="train-a1", start_time=START)
FAILED_FIRST = FIRST.model_copy(
    update={
        "verdict": VerdictKind.FAILURE,
        "reason": "NonZeroExit",
        "message": "rank 1 exited with code 1",
        "log_tail": ["log"],
    }
)
UNTIL = datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)
ENDING = Ending(ConditionType.FAILED, Reason.NON_ZERO_EXIT, "rank 1 exited with code 1 in attempt 1")


def gang(*phases: HostPhase, placed: bool = True, waiting: Waiting | None = None) -> GangObservation:
    hosts = tuple(
        HostObservation(0, rank, rank, f"pod-{rank}", phase, node=f"node-{rank}" if placed else None)
        for rank, phase in enumerate(phases)
    )
    return GangObservation(hosts, waiting)


P, R, S, F = HostPhase.PENDING, HostPhase.RUNNING, HostPhase.SUCCEEDED, HostPhase.FAILED
JOB = build_frayjob(replicas=3)


def told(
    outlook: Outlook,
    observed: GangObservation | None = None,
    attempts: tuple[AttemptStatus, ...] = (FIRST,),
    *,
    job: FrayJob = JOB,
    now: datetime = NOW,
) -> FrayJobStatus:
    return derive_status(job, observed, attempts, COUNTS, outlook, now)


def conditions(status: FrayJobStatus) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason, c.message) for c in status.conditions}


# --- the words -----------------------------------------------------------------------------------------


def test_a_job_whose_first_attempt_starts() -> None:
    status = told(Outlook(Stage.STARTING))
    assert conditions(status) == {
        "Accepted": ("True", "Valid", "the job asks for 3 copies on CPU"),
        "Scheduled": ("False", "HostsStarting", "3 of 3 hosts are starting"),
        "Running": ("False", "HostsStarting", "3 of 3 hosts are starting"),
        "Finished": ("False", "InProgress", "the job has not ended yet"),
    }
    assert (status.phase, status.reason, status.attempt) == ("Pending", "HostsStarting", 1)
    assert status.replicas == ReplicaCounts(total=3, pending=3, running=0, succeeded=0, failed=0)
    assert status.start_time == START
    assert status.completion_time is None


@pytest.mark.parametrize(
    ("phases", "placed", "scheduled", "running", "phase"),
    [
        ((P, P, P), False, "False", "False", "Pending"),
        ((R, P, P), True, "True", "False", "Pending"),
        ((R, R, P), True, "True", "False", "Pending"),
        ((R, R, R), True, "True", "True", "Running"),
        ((S, R, R), True, "True", "True", "Running"),
        # a host that runs is placed, even if nothing says where
        ((R, R, R), False, "True", "True", "Running"),
    ],
)
def test_a_live_attempt(
    phases: tuple[HostPhase, ...], placed: bool, scheduled: str, running: str, phase: str
) -> None:
    status = told(Outlook(Stage.LIVE), gang(*phases, placed=placed))
    found = conditions(status)
    assert (found["Scheduled"][0], found["Running"][0], status.phase) == (scheduled, running, phase)
    assert found["Finished"][0] == "False"


def test_a_running_gang_counts_its_hosts() -> None:
    status = told(Outlook(Stage.LIVE), gang(S, R, R))
    assert conditions(status)["Running"] == (
        "True",
        "AllHostsRunning",
        "2 of 3 hosts run, 1 ended well (attempt 1)",
    )
    assert status.replicas == ReplicaCounts(total=3, pending=0, running=2, succeeded=1, failed=0)


@pytest.mark.parametrize(
    ("phases", "message"), [((R,), "the host has a node"), ((R, R), "all 2 hosts have a node")]
)
def test_one_host_is_no_gang_in_words(phases: tuple[HostPhase, ...], message: str) -> None:
    status = told(Outlook(Stage.LIVE), gang(*phases), job=build_frayjob(replicas=len(phases)))
    assert conditions(status)["Scheduled"] == ("True", "AllHostsPlaced", message)


def test_what_hosts_wait_for_is_told_in_both_conditions() -> None:
    waiting = Waiting(Reason.NO_MATCHING_NODE_POOL, "no node has the label")
    status = told(Outlook(Stage.LIVE, waiting=waiting), gang(R, P, P, placed=False, waiting=waiting))
    expected = ("False", "NoMatchingNodePool", "no node has the label")
    assert conditions(status)["Scheduled"] == conditions(status)["Running"] == expected
    assert status.reason == "NoMatchingNodePool"


def test_no_host_is_said_to_start_while_its_attempt_ends() -> None:
    failed = FAILED_FIRST.model_copy(update={"verdict": None})
    found = conditions(told(Outlook(Stage.ENDING), gang(F, P, P, placed=False), (failed,)))
    assert found["Scheduled"] == found["Running"]
    assert found["Scheduled"][1] == "Stopping"


def test_hosts_that_could_not_be_created_say_why() -> None:
    refused = Waiting(Reason.QUOTA_EXCEEDED, "a quota is used up")
    status = told(Outlook(Stage.STARTING, waiting=refused))
    assert conditions(status)["Running"] == ("False", "QuotaExceeded", "a quota is used up")


def test_an_attempt_that_is_ending_says_why() -> None:
    status = told(Outlook(Stage.ENDING), gang(F, R, R), (FAILED_FIRST.model_copy(update={"verdict": None}),))
    assert conditions(status)["Running"] == (
        "False",
        "Stopping",
        "attempt 1 is ending: rank 1 exited with code 1",
    )
    assert status.phase == "Stopping"


def test_a_pause_says_why_and_until_when() -> None:
    status = told(Outlook(Stage.BACKING_OFF, until=UNTIL), gang(F, F, F), (FAILED_FIRST,))
    assert conditions(status)["Running"] == (
        "False",
        "BackOff",
        "attempt 1 ended: rank 1 exited with code 1; attempt 2 starts at 2026-01-31T12:00:10.000Z",
    )
    assert status.phase == "Restarting"


@pytest.mark.parametrize(
    ("attempts", "phase"),
    [
        ((FIRST,), "Pending"),
        ((FAILED_FIRST, AttemptStatus(number=2)), "Restarting"),
        ((FAILED_FIRST,), "Restarting"),
    ],
)
def test_a_job_restarts_from_its_second_attempt_on(attempts: tuple[AttemptStatus, ...], phase: str) -> None:
    assert told(Outlook(Stage.STARTING), attempts=attempts).phase == phase


def test_a_suspended_job() -> None:
    status = told(Outlook(Stage.SUSPENDED), attempts=())
    assert (status.phase, status.reason, status.attempt, status.start_time) == (
        "Suspended",
        "Suspended",
        None,
        None,
    )
    assert status.replicas == ReplicaCounts(total=3, pending=0, running=0, succeeded=0, failed=0)


@pytest.mark.parametrize("kind", [ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.STOPPED])
def test_a_finished_job_has_one_condition_for_kubectl_wait_and_one_that_says_how(kind: ConditionType) -> None:
    ending = Ending(kind, Reason.NON_ZERO_EXIT, "why")
    status = told(Outlook(Stage.FINISHED, ending=ending), gang(F, S, S), (FAILED_FIRST,))
    found = conditions(status)
    assert found["Finished"] == found[kind.value] == ("True", "NonZeroExit", "why")
    assert found["Running"] == found["Scheduled"] == ("False", "Ended", "the job has ended")
    assert (status.phase, status.reason) == (kind.value, "NonZeroExit")
    assert status.completion_time == "2026-01-31T12:00:00.000Z"
    assert is_finished(status)
    others = {"Succeeded", "Failed", "Stopped"} - {kind.value}
    assert not others & found.keys()


def test_a_job_that_asks_for_the_impossible_is_not_accepted() -> None:
    no = Waiting(Reason.POD_TEMPLATE_INVALID, "spec.podTemplate is wrong")
    status = told(Outlook(Stage.UNSUPPORTED, unsupported=no), attempts=())
    assert conditions(status)["Accepted"] == ("False", "PodTemplateInvalid", "spec.podTemplate is wrong")
    assert conditions(status)["Running"][:2] == ("False", "PodTemplateInvalid")
    assert not is_finished(status)


def test_a_suspended_job_has_a_condition_that_stays_and_becomes_false() -> None:
    assert "Suspended" not in conditions(told(Outlook(Stage.LIVE), gang(R, R, R)))
    suspended = told(Outlook(Stage.SUSPENDED))
    assert conditions(suspended)["Suspended"] == ("True", "Suspended", "spec.suspend is true")
    resumed = told(Outlook(Stage.LIVE), gang(R, R, R), job=with_status(JOB, suspended), now=LATER)
    assert conditions(resumed)["Suspended"][:2] == ("False", "InProgress")
    ended = told(
        Outlook(Stage.FINISHED, ending=ENDING), gang(S, S, S), job=with_status(JOB, resumed), now=LATER
    )
    assert conditions(ended)["Suspended"][:2] == ("False", "Ended")
    waiting = Waiting(Reason.QUEUE_DEACTIVATED, "its Workload is deactivated")
    held = told(Outlook(Stage.DEACTIVATED, waiting=waiting))
    assert conditions(held)["Suspended"] == ("True", "QueueDeactivated", "its Workload is deactivated")


def test_how_many_hosts_run_is_printed_of_all() -> None:
    assert told(Outlook(Stage.STARTING)).ready == "0/3"
    assert told(Outlook(Stage.LIVE), gang(R, R, P)).ready == "2/3"
    assert told(Outlook(Stage.FINISHED, ending=ENDING), gang(S, S, S)).ready == "0/3"


def test_hosts_that_are_gone_neither_run_nor_wait() -> None:
    alive = with_status(JOB, told(Outlook(Stage.LIVE), gang(S, R, P)))
    for outlook in (Outlook(Stage.SUSPENDED), Outlook(Stage.FINISHED, ending=ENDING)):
        counts = told(outlook, None, job=alive).replicas
        assert counts == ReplicaCounts(total=3, pending=0, running=0, succeeded=1, failed=0)


# --- history -------------------------------------------------------------------------------------------


def test_a_condition_keeps_its_time_while_its_status_does_even_when_its_words_change() -> None:
    before = told(Outlook(Stage.LIVE), gang(R, P, P))
    after = told(Outlook(Stage.LIVE), gang(R, R, P), job=with_status(JOB, before), now=LATER)
    assert conditions(after)["Running"] != conditions(before)["Running"]
    assert [c.last_transition_time for c in after.conditions] == [
        c.last_transition_time for c in before.conditions
    ]


def test_a_condition_gets_a_new_time_when_its_status_changes_back_and_forth() -> None:
    times = []
    job = JOB
    for minute, phases in enumerate([(R, R, P), (R, R, R), (R, R, R), (R, R, P)]):
        now = NOW + timedelta(minutes=minute)
        status = told(Outlook(Stage.LIVE), gang(*phases), job=job, now=now)
        running = find_condition(status, ConditionType.RUNNING)
        assert running is not None
        times.append(running.last_transition_time[11:16])
        job = with_status(job, status)
    assert times == ["12:00", "12:01", "12:01", "12:03"]


def test_the_start_of_the_job_is_that_of_its_first_attempt_for_ever() -> None:
    job = with_status(JOB, told(Outlook(Stage.STARTING)))
    second = AttemptStatus(number=2, start_time="2026-01-31T13:00:00.000Z")
    assert told(Outlook(Stage.STARTING), attempts=(second,), job=job).start_time == START


def test_conditions_say_which_spec_they_are_about() -> None:
    job = with_spec(with_status(JOB, told(Outlook(Stage.LIVE), gang(R, R, R))), suspend=True)
    status = told(Outlook(Stage.SUSPENDED), job=job, now=LATER)
    assert status.observed_generation == 2
    assert {condition.observed_generation for condition in status.conditions} == {2}


@pytest.mark.parametrize(
    ("workers", "demand", "desired"),
    [
        ({}, 0, 0),
        ({"replicas": 3}, 3, 3),
        ({"replicas": 3, "minReplicas": 5}, 3, 5),
        ({"replicas": 9, "minReplicas": 1, "maxReplicas": 4}, 9, 4),
        ({"minReplicas": 2, "maxReplicas": 2}, 0, 2),
    ],
)
def test_it_is_told_how_many_workers_there_are_to_be(
    workers: dict[str, int], demand: int, desired: int
) -> None:
    counts = told(Outlook(Stage.LIVE), gang(R, R, R), job=build_frayjob(workers=workers)).workers
    assert counts is not None
    assert (counts.demand, counts.desired, counts.ready) == (demand, desired, 0)
    assert counts.selector == "fray.dev/job=train,fray.dev/role=worker"


@pytest.mark.parametrize("workers", [{"maxReplicas": 0}, {"replicas": 3, "maxReplicas": 0}])
def test_a_job_without_workers_tells_of_none(workers: dict[str, int]) -> None:
    assert told(Outlook(Stage.LIVE), gang(R, R, R), job=build_frayjob(workers=workers)).workers is None
    assert told(Outlook(Stage.LIVE), gang(R, R, R), job=build_frayjob()).workers is None


def test_what_others_wrote_stays() -> None:
    theirs = FrayJobStatus(
        avoided_nodes=[AvoidedNode(node="n", until=START, reason="bad")],
    )
    status = told(Outlook(Stage.LIVE), gang(R, R, R), job=with_status(JOB, theirs))
    assert status.avoided_nodes == theirs.avoided_nodes


OUTLOOKS = st.sampled_from(
    [
        Outlook(Stage.STARTING),
        Outlook(Stage.LIVE),
        Outlook(Stage.ENDING),
        Outlook(Stage.BACKING_OFF, until=UNTIL),
        Outlook(Stage.SUSPENDED),
        Outlook(Stage.UNSUPPORTED, unsupported=Waiting(Reason.POD_TEMPLATE_INVALID, "no")),
        Outlook(Stage.FINISHED, ending=ENDING),
    ]
)


@settings(max_examples=200, derandomize=True)
@given(
    outlook=OUTLOOKS,
    phases=st.lists(st.sampled_from(HostPhase), min_size=3, max_size=3),
    seconds=st.integers(1, 10**8),
)
def test_time_alone_changes_nothing(outlook: Outlook, phases: list[HostPhase], seconds: int) -> None:
    if outlook.stage in (Stage.LIVE, Stage.ENDING):
        observed: GangObservation | None = gang(*phases)
    else:
        observed = None
    first = told(outlook, observed, (FAILED_FIRST,))
    again = told(
        outlook, observed, (FAILED_FIRST,), job=with_status(JOB, first), now=NOW + timedelta(seconds=seconds)
    )
    assert replace_completion(again) == replace_completion(first)


def replace_completion(status: FrayJobStatus) -> FrayJobStatus:
    """A finished job is never derived again (`lifecycle`), so its end may be that of the call."""
    return status.model_copy(update={"completion_time": None})


@settings(max_examples=100, derandomize=True)
@given(outlook=OUTLOOKS, phases=st.lists(st.sampled_from(HostPhase), min_size=3, max_size=3))
def test_every_status_is_whole_and_survives_being_written(outlook: Outlook, phases: list[HostPhase]) -> None:
    observed = gang(*phases) if outlook.stage in (Stage.LIVE, Stage.ENDING) else None
    status = told(outlook, observed, (FAILED_FIRST,))
    assert FrayJobStatus.from_manifest(status.to_manifest()) == status
    assert [c.type for c in status.conditions][:4] == ["Accepted", "Scheduled", "Running", "Finished"]
    assert all(c.reason and c.message and c.status in ("True", "False") for c in status.conditions)
    assert all("\n" not in c.message for c in status.conditions[:3])
