"""Workers come with a running attempt and end with it; a lost one is no failure, and none at all is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Suspension, Waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.plan.worker_observation import Crash, WorkerJob, WorkersObservation
from fray.plan.workers import (
    RemoveWorkers,
    ResizeWorkers,
    StartWorkers,
)
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_spec, with_status

NOW = datetime(2026, 1, 31, 12, 10, tzinfo=UTC)
BEGUN = "2026-01-31T12:00:00.000Z"
RUNS = AttemptStatus(number=1, job_set="train-a1", start_time=BEGUN, running_time=BEGUN)
STARTED = NOW - timedelta(minutes=10)


def host(phase: HostPhase = HostPhase.RUNNING, **told: Any) -> GangObservation:
    ended = NOW if phase is not HostPhase.RUNNING else None
    seen = HostObservation(0, 0, 0, "pod", phase, node="n", started_at=STARTED, ended_at=ended)
    return GangObservation((seen,), **told)


def workers(completions: int = 2, **status: Any) -> WorkersObservation:
    return WorkersObservation((WorkerJob("train-a1-w1", completions, **status),))


def running(attempt: AttemptStatus = RUNS, **spec: Any) -> FrayJob:
    job = build_frayjob(workers={"replicas": 2}, **spec)
    return with_status(job, FrayJobStatus(attempts=[attempt], start_time=BEGUN))


def look(
    job: FrayJob, observed: GangObservation | None, seen: WorkersObservation | None, *, later: float = 0
) -> Decision:
    now = NOW + timedelta(seconds=later)
    return decide(job, observed, now=now, policy=RetryPolicy(), workers=seen)


def ready_condition(decision: Decision) -> tuple[str, str, str]:
    found = find_condition(decision.status, ConditionType.WORKERS_READY)
    assert found is not None
    return found.status, found.reason, found.message


def test_a_running_attempt_gets_its_workers_and_their_size_step_by_step() -> None:
    job = running()
    assert look(job, host(), WorkersObservation()).action == StartWorkers(1, 2)
    assert look(job, host(), workers(2)).action is None
    grown = with_spec(job, workers=job.spec.workers.model_copy(update={"replicas": 5}))
    assert look(grown, host(), workers(2)).action == ResizeWorkers("train-a1-w1", 5)


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [({}, 1), (None, None)],
    ids=["one that may have workers", "one that has none"],
)
def test_a_job_that_was_scaled_goes_on_after_a_failed_attempt(
    workers: dict[str, Any] | None, wanted: int | None
) -> None:
    """What `kubectl scale --replicas=1` writes is spec.workers.replicas, and nothing beside."""
    job = build_frayjob(retries={"failures": 1}, **({} if workers is None else {"workers": workers}))
    asked = job.spec.workers.model_copy(update={"replicas": 1})
    job = with_status(with_spec(job, workers=asked), FrayJobStatus(attempts=[RUNS], start_time=BEGUN))
    none = None if wanted is None else WorkersObservation()
    again = look(job, host(HostPhase.FAILED), none, later=60)
    assert [attempt.verdict for attempt in again.status.attempts] == ["Failure", None]
    assert again.action == StartAttempt(2)
    runs = look(with_status(job, again.status), host(), none, later=70)
    assert runs.action == (None if wanted is None else StartWorkers(1, wanted))
    assert runs.status.attempts[-1].reason is None


def test_where_no_workers_can_be_nothing_is_done() -> None:
    assert look(running(), host(), None).action is None


def test_workers_of_a_gang_in_a_queue_come_after_it() -> None:
    job = running(RUNS.model_copy(update={"running_time": None}), queue={"name": "team"})
    waits = GangObservation((HostObservation(0, 0, 0, None, HostPhase.PENDING),), suspension=Suspension())
    assert look(job, waits, WorkersObservation()).action is None
    assert look(job, host(), WorkersObservation()).action == StartWorkers(1, 2)


def test_it_is_told_how_many_take_tasks_and_why_not_all() -> None:
    job = running()
    starting = look(job, host(), workers(2, active=2, ready_count=1))
    assert ready_condition(starting) == ("False", "WorkersStarting", "1 of 2 workers take tasks")
    assert starting.status.workers is not None
    assert (starting.status.workers.replicas, starting.status.workers.ready) == (2, 1)
    full = Waiting(Reason.INSUFFICIENT_CAPACITY, "no node has room")
    stuck = WorkersObservation(workers(2, active=2).jobs, waiting=full)
    assert ready_condition(look(job, host(), stuck)) == (
        "False",
        "InsufficientCapacity",
        "0 of 2 workers take tasks: no node has room",
    )
    assert ready_condition(look(job, host(), workers(2, active=2, ready_count=2))) == (
        "True",
        "AllWorkersReady",
        "2 of 2 workers take tasks",
    )


def test_it_is_told_how_many_workers_go() -> None:
    two = (*workers(3, active=2, terminating=1).jobs, *workers(2, leaving=True, terminating=2).jobs)
    counts = look(running(), host(), WorkersObservation(two)).status.workers
    assert counts is not None
    assert (counts.desired, counts.replicas, counts.draining) == (2, 2, 3)


def test_workers_without_room_hold_up_no_host() -> None:
    full = Waiting(Reason.INSUFFICIENT_CAPACITY, "no node has room")
    decision = look(running(), host(), WorkersObservation(workers(2, active=2).jobs, waiting=full))
    assert decision.status.phase == "Running"
    found = find_condition(decision.status, ConditionType.SCHEDULED)
    assert found is not None
    assert found.status == "True"


def test_a_job_that_can_have_none_says_nothing_of_workers() -> None:
    job = with_status(build_frayjob(), FrayJobStatus(attempts=[RUNS], start_time=BEGUN))
    decision = look(job, host(), None)
    assert find_condition(decision.status, ConditionType.WORKERS_READY) is None
    assert decision.status.workers is None


def test_an_attempt_ends_only_once_its_workers_have() -> None:
    job = running()
    ended = look(job, host(HostPhase.SUCCEEDED), workers(2, active=2, ready_count=2))
    assert ended.action == RemoveWorkers("train-a1-w1")
    assert not ended.finished
    assert ended.status.phase == "Stopping"
    job = with_status(job, ended.status)
    leaving = look(job, host(HostPhase.SUCCEEDED), workers(2, active=1, leaving=True))
    assert (leaving.action, leaving.finished) == (None, False)
    for gone in (WorkersObservation(), workers(2, ended=True)):
        done = look(job, host(HostPhase.SUCCEEDED), gone)
        assert done.finished
        assert done.status.phase == "Succeeded"
        assert ready_condition(done) == ("False", "Ended", "the job has ended")


def test_workers_end_although_the_jobset_is_gone() -> None:
    lost = look(running(), None, workers(2, active=2))
    assert lost.status.attempts[-1].reason == Reason.HOSTS_GONE
    assert lost.action == RemoveWorkers("train-a1-w1")
    assert lost.status.attempts[-1].verdict is None


def test_a_job_that_is_stopped_ends_its_hosts_and_then_its_workers() -> None:
    job = running(stopped=True)
    first = look(job, host(), workers(2, active=2))
    assert first.action == EndAttempt(1, Reason.STOP_REQUESTED)
    job = with_status(job, first.status)
    then = look(job, host(HostPhase.DELETED), workers(2, active=2))
    assert then.action == RemoveWorkers("train-a1-w1")
    assert look(job, host(HostPhase.DELETED), workers(2, ended=True)).status.phase == "Stopped"


def test_a_job_whose_status_another_version_wrote_ends_its_workers_too_when_it_is_stopped() -> None:
    unknown = RUNS.model_copy(update={"verdict": "Eclipse", "reason": "SolarFlare", "end_time": BEGUN})
    status = FrayJobStatus(attempts=[unknown, RUNS.model_copy(update={"number": 2})], start_time=BEGUN)
    job = with_status(running(stopped=True), status)
    assert look(job, host(), workers(2, active=2)).action == EndAttempt(2, Reason.STOP_REQUESTED)
    then = look(job, host(HostPhase.DELETED), workers(2, active=2))
    assert (then.action, then.finished) == (RemoveWorkers("train-a1-w1"), False)
    assert look(job, host(HostPhase.DELETED), workers(2, ended=True)).finished


def test_an_evicted_attempt_ends_its_workers_before_the_queue_resumes_it() -> None:
    waits = GangObservation(
        (HostObservation(0, 0, 0, None, HostPhase.PENDING),),
        suspension=Suspension(requeued=True),
        settled=False,
    )
    job = running(queue={"name": "team"})
    first = look(job, waits, workers(2, active=2))
    assert first.action == RemoveWorkers("train-a1-w1")
    assert [attempt.number for attempt in first.status.attempts] == [1]
    again = look(with_status(job, first.status), waits, WorkersObservation())
    assert [attempt.number for attempt in again.status.attempts] == [1, 2]


def test_lost_workers_are_no_failure() -> None:
    job = running()
    begun = look(job, host(), workers(2, active=2, ready_count=1, failed=3))
    assert begun.status.attempts[-1].workers_time is not None
    lost = look(with_status(job, begun.status), host(), workers(2, failed=100))
    assert lost.status.attempts[-1].reason is None
    assert look(job, host(), workers(2, failed=7)).status.attempts[-1].reason is None


def test_eight_crashes_of_which_none_took_a_task_end_the_attempt_with_the_last_ones_story() -> None:
    jobs = (WorkerJob("train-a1-w1", 2, failed=5), WorkerJob("train-a1-w2", 2, failed=3))
    crash = Crash("w ended with exit code 3", ("no module",))
    decision = look(running(), host(), WorkersObservation(jobs, crash=crash))
    attempt = decision.status.attempts[-1]
    assert decision.action == EndAttempt(1, Reason.WORKERS_FAILED)
    assert (attempt.reason, attempt.message, attempt.log_tail) == (
        "WorkersFailed",
        "its workers crashed 8 times, and none took a task; w ended with exit code 3",
        ["no module"],
    )
    gone = look(with_status(running(), decision.status), None, WorkersObservation())
    assert gone.status.attempts[-1].verdict == "Failure"
    assert gone.status.phase == "Failed"


def test_one_worker_whose_image_cant_serve_ends_the_job() -> None:
    job, one = running(retries={"failures": 3}), workers(2, active=1, failed=1).jobs
    story = "w ended with exit code 117: Add `ray` to the image."
    decision = look(job, host(), WorkersObservation(one, unfit=Crash(story)))
    attempt = decision.status.attempts[-1]
    assert decision.action == EndAttempt(1, Reason.WORKER_IMAGE_MISMATCH)
    assert (attempt.reason, attempt.message) == (
        "WorkerImageMismatch",
        f"its workers can't join; {story}",
    )
    ended = look(with_status(job, decision.status), host(HostPhase.DELETED), workers(2, ended=True))
    assert (ended.finished, ended.status.phase) == (True, "Failed"), "however many retries it has"
    assert len(ended.status.attempts) == 1
    joined = workers(2, active=2, ready_count=1, failed=1).jobs
    assert look(job, host(), WorkersObservation(joined, unfit=Crash(story))).action is None, (
        "others take tasks"
    )


def test_workers_whose_image_isnt_pulled_in_the_time_that_hosts_have_end_the_attempt() -> None:
    job = running(timeouts={"pendingSeconds": 300})
    unpulled = Waiting(Reason.IMAGE_PULL_FAILED, "image nowhere/x: not found")
    for reason, minutes, ended in [
        (unpulled, 4, False),
        (unpulled, 6, True),
        (Waiting(Reason.INSUFFICIENT_CAPACITY, "full"), 6, False),
    ]:
        made = NOW - timedelta(minutes=minutes)
        seen = WorkersObservation(workers(2, active=2, created_at=made).jobs, waiting=reason)
        attempt = look(job, host(), seen).status.attempts[-1]
        told = "no worker began within spec.timeouts.pendingSeconds (300): image nowhere/x: not found"
        assert (attempt.reason, attempt.message) == (("WorkersFailed", told) if ended else (None, None))
        joined = job.status.attempts[-1].model_copy(update={"workers_time": BEGUN})
        assert look(running(joined, timeouts={"pendingSeconds": 300}), host(), seen).action is None
    assert look(running(), host(), seen).action is None


def test_workers_of_another_attempt_go_first() -> None:
    late = (WorkerJob("train-a0-w1", 2, active=2),)
    seen = WorkersObservation(workers(1).jobs, stale=late)
    assert look(running(), host(), seen).action == RemoveWorkers("train-a0-w1")
    gone = WorkersObservation(workers(1).jobs, stale=(WorkerJob("train-a0-w1", 2, ended=True),))
    assert look(running(), host(), gone).action == ResizeWorkers("train-a1-w1", 2)


def test_the_next_attempt_has_workers_of_its_own() -> None:
    ended = RUNS.model_copy(update={"verdict": "Preemption", "reason": "Disrupted", "end_time": BEGUN})
    decision = look(running(ended), None, None, later=3600)
    assert decision.action == StartAttempt(2)
    assert decision.status.attempts[-1].workers_time is None
